// Package counters counts packets by rule. It reads VPP's statistics segment, and keeps the counts
// of ACLs that no longer exist.
package counters
