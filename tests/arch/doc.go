// Package arch checks rules of the source tree: directions of import, sizes, public names, names of
// tests, words, links and widths of lines. It has no code of its own: the rules are tables in its
// tests.
package arch
