// Package backends lists the renderers of the product, each over a dataplane that runs
// here, so that every test of the whole pipeline runs on all of them.
//
//	tests/lab/harness -> All -> renderer -> its dataplane
//
// # Invariants
//
//   - A new renderer is one line in All. Tests assume nothing about a backend but what Backend
//     declares, and use type assertions for more.
//   - Where a machine cannot run a kind, its tests skip and say why. SLUICE_STACK names the only
//     kind that is tested; with a name that no kind has, tests fail.
//   - Kinds with a real VPP are tested only where SLUICE_STACK names them and the environment has a
//     VPP. Its processes end with a test (Kind.On).
//   - A verdict is that of the dataplane, by its own matching rules; no verdict is derived from the
//     state that the renderer received.
package backends
