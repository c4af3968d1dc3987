// Package suggest finds the smallest changes of policies and labels that would reverse a verdict:
// that would allow a denied flow, or deny an allowed one.
//
//	verdict -> openings, closings   what could do it    (opening.go, closing.go, adminrules.go)
//	each    -> After                the state with it   (apply.go, adminedit.go)
//	        -> internal/analysis/oracle      what it does        (search.go)
//
// # Invariants
//
//   - Change.Flips was tried, not guessed: the change is made in the objects, and the
//     oracle is asked about them.
//   - No part of a change that flips can be left out, and every policy that applied to an
//     end applies to it still.
//   - Changes come smallest first (Kind has the order of what is of one size). Those of
//     labels that evade an admin rule come after all others.
//   - What is tried and what is offered is bounded, so that a question about a crowded
//     namespace ends.
package suggest
