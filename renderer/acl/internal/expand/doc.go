// Package expand makes entries of rules: it takes the members of address sets for their names,
// merges what ports and blocks can be merged, leaves out what can never match, and says for every
// entry which rule it comes from. It also makes the entries of guards. It is pure.
package expand
