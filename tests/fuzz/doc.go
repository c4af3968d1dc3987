// Package fuzz sends arbitrary bytes through the whole pipeline: manifests from their text, and
// pairs of key and value from the store, to the state that a renderer receives. The result must
// never permit more than internal/oracle does for the same objects. Objects of hostile size go the
// same way, within bounds of memory. Targets for single parsers are in the packages of the parsers;
// docs/design/fuzzing.md lists all.
package fuzz
