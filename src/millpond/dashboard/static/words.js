// A line of arguments as a shell would split it: words, 'as is', "with \" inside", back\ slash.

/** The words of `line`. Throws when a quote has no end. */
export function words(line) {
  const found = [];
  let word = null;
  let quote = null;
  for (let index = 0; index < line.length; index += 1) {
    const letter = line[index];
    if (quote) {
      if (letter === quote) quote = null;
      else if (letter === "\\" && quote === '"' && '"\\'.includes(line[index + 1])) word += line[(index += 1)];
      else word += letter;
    } else if (letter === "'" || letter === '"') {
      quote = letter;
      word ??= "";
    } else if (/\s/.test(letter)) {
      if (word !== null) found.push(word);
      word = null;
    } else {
      word = (word ?? "") + (letter === "\\" && index + 1 < line.length ? line[(index += 1)] : letter);
    }
  }
  if (quote) throw new Error(`The arguments contain an unclosed ${quote}.`);
  if (word !== null) found.push(word);
  return found;
}
