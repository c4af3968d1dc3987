// Package pauses bounds the share of time for which changes of ACLs pause VPP's workers. It delays
// new members of sets, and has timers for commits that should wait for an idle period.
package pauses
