// Package faults holds oracles that are wrong on purpose, each in one way that
// implementations of NetworkPolicy have been or could be wrong, and measures which
// suites notice. What no suite notices has to be covered by own tests.
//
//	Fault -> Kind -> replay.Run on public suites -> cases that notice
//	   +---> Random: sequences of random clusters -> sequences that notice
//
// # Invariants
//
//   - A fault is a state misread, an option turned, or a wrong answer;
//     the oracle itself stays what the other tests trust.
//   - Without its one defect a faulty oracle is the oracle.
//   - Every fault is noticed by something that runs here, or it is no fault.
package faults
