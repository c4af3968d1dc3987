// Package pauses limits the share of time for which changes of ACLs pause VPP's workers: it delays
// new members of address sets, and commits that should wait for an idle period. It delays new
// members of sets, and has timers for commits that should wait for an idle period.
package pauses
