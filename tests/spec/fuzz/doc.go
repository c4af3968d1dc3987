// Package fuzz sends arbitrary manifests and store entries through the whole pipeline, and checks
// that the result never permits more than the oracle does. The result must never permit more than
// internal/analysis/oracle does for the same objects. Objects of hostile size go the same way, within bounds
// of memory. Targets for single parsers are in the packages of the parsers; docs/design/fuzzing.md
// lists all.
package fuzz
