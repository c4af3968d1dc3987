// Package backends lists the renderers of the product, each over a dataplane that runs
// here, so that every test of the whole pipeline runs on all of them.
//
//	tests/harness -> All -> renderer -> its dataplane
//
// # Invariants
//
//   - A new renderer is one line in All. Tests ask nothing of a backend but what
//     Backend says, and ask for more by type assertion.
//   - Where a machine cannot have a kind, its tests skip and say why. SLUICE_STACK names the
//     only kind that is tested; with a name that no kind has, tests fail.
//   - A real VPP is none of All, since not every machine has one: NewVPPs makes its kind.
//   - A verdict is that of the dataplane, by its own matching rules; nothing is answered
//     from what the renderer was told.
package backends
