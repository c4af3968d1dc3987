// Package arch checks rules of the source tree: directions of import, public names and links. It has
// no code of its own: the rules are tables in its tests.
package arch
