// Package fuzz sends bytes that nobody wrote on purpose down the whole flow:
// manifests from their text, and pairs of key and value from the store, to what a
// renderer is told. What comes out must never be more open than internal/oracle
// says about the same objects. Objects of hostile size go the same way, within
// bounds of memory. Targets for single parsers stand beside them; docs/design/fuzzing.md
// lists all.
package fuzz
