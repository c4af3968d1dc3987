// Package counters knows how often rules have decided: it reads VPP's statistics segment, and
// remembers what ACLs counted that are no more.
package counters
