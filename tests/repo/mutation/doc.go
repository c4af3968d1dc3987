// Command mutation seeds faults into the product, one at a time, and lets the harness
// run until a suite fails. A fault that no suite notices is a hole in the harness, or
// changes nothing.
//
//	faults/*.yaml -> one fault -> overlay -> go test -c -> suites, cheapest first -> table
//	                                                             |
//	                                    the first that fails <---+
//
// The harness is what asks the product from outside: scenarios, sequences, the
// comparison with internal/analysis/oracle, and the suite that every renderer must pass. The unit
// tests of a mutated package are not part of it; -unit shows what they think.
//
// # Invariants
//
//   - The tree is never changed: the go command compiles a mutated copy of one file by
//     means of an overlay. Of the program in the kernel that is its object, see kernel.go.
//   - Every run of a suite is preceded by the same run without a fault, which must pass.
//   - A fault that does not compile is a mistake in the list and never counts as caught.
//   - Runs can be repeated: random tests get a fixed seed.
//
// The list is part of the ordinary tests: list_test.go fails when a fault no longer fits its file.
// docs/design/mutation.md describes how to add one.
package main
