// Package pauses has what keeps pauses of VPP rare: members of sets that wait for their turn, and
// timers for moments in which a commit is worth its pause.
package pauses
