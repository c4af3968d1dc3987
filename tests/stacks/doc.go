// Package stacks lists the renderers of the product, each over a stack that runs
// here, so that every harness runs on all of them.
//
//	tests/fleet, tests/scenarios, tests/differential -> All -> renderer -> its stack
//
// # Invariants
//
//   - A new renderer is one line in All. Harnesses ask nothing of a stack but what
//     Stack says, and ask for more by type assertion.
//   - Where a machine cannot have a kind, its tests skip and say why. SLUICE_STACK names the
//     only kind that is tested; with a name that no kind has, tests fail.
//   - A real VPP is none of All, since not every machine has one: NewVPPs makes its kind.
//   - A verdict is that of the stack, by its own matching rules; nothing is answered
//     from what the renderer was told.
package stacks
