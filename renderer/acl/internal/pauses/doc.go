// Package pauses limits pauses of VPP: it delays set members, and provides timers for commits that
// should wait for an idle period.
package pauses
