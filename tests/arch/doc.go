// Package arch checks the import directions that docs/ARCHITECTURE.md draws. It
// has no code of its own: the law is the table in its test.
package arch
