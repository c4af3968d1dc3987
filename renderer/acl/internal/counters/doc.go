// Package counters turns VPP's counters of ACL entries into packet counters of policy rules. It
// reads VPP's statistics segment, and keeps the counts of ACLs that no longer exist.
package counters
