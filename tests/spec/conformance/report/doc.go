// Command report replays the recorded public suites through the oracle and every renderer, and
// writes docs/reference/conformance.md.
//
//	go run ./tests/spec/conformance/report -o docs/reference/conformance.md
//
// Its exit status is 1 when something differs or cannot be run, and 2 when the suites
// are absent; the page is written in the first case only if everything was run. The
// same tree and suites give the same page; times go to the terminal.
package main
