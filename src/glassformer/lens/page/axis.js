/** Where an axis has its lines, and what is written at them. */

/** How many lines there are: four where that can be, and at least three, whatever is to be shown. */
const [LEAST, WISHED, MOST] = [3, 4, 6];

/**
 * Round numbers from `low` to `high`. Those of a log scale are evenly apart to the eye: 1, 2, 5, 10, ..., or fewer. Within
 * a decade there are often not enough of these, and it has multiples of a round step, as a linear scale has.
 * @param {number} low above 0 for a log scale
 * @param {number} high above `low`
 * @param {boolean} log
 * @returns {number[]}
 */
export function places(low, high, log) {
  return (log && best([[1, 2, 5], [1, 3], [1]].map((digits) => powers(low, high, digits)))) || best(multiples(low, high)) || [low, high];
}

/** Of several sets of places, one with a good number of them. @param {number[][]} sets @returns {number[] | undefined} */
function best(sets) {
  const far = (/** @type {number[]} */ { length }) => Math.abs(length - WISHED);
  return sets.filter(({ length }) => length >= LEAST && length <= MOST).sort((a, b) => far(a) - far(b))[0];
}

/** @param {number} low @param {number} high @param {number[]} digits what stands before a power of ten */
function powers(low, high, digits) {
  const first = Math.floor(Math.log10(low));
  const decades = Math.floor(Math.log10(high)) - first + 1;
  const apart = digits.length > 1 ? 1 : Math.ceil(decades / MOST); // of many powers, each second or third
  return Array.from({ length: decades }, (_, i) => first + i).filter((power) => power % apart === 0)
    .flatMap((power) => digits.map((digit) => Number(`${digit}e${power}`))).filter((each) => each >= low && each <= high);
}

/** The multiples of each round step, from the smallest step that is of use here. @param {number} low @param {number} high */
function multiples(low, high) {
  const power = Math.ceil(Math.log10(high - low));
  return [power - 2, power - 1].flatMap((each) => [1, 2, 2.5, 5].map((digit) => Number(`${digit}e${each}`))).map((step) => {
    const [first, last] = [Math.ceil(low / step - 1e-9), Math.floor(high / step + 1e-9)];
    return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
  });
}

/** A place with all its digits: rounded, two of them could read the same. @param {number} at */
export function written(at) {
  return at !== 0 && (Math.abs(at) < 1e-4 || Math.abs(at) >= 1e6) ? at.toExponential() : String(at);
}
