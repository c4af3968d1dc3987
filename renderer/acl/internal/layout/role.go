package layout

import (
	"strings"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

// Age is the age of a segment.
type Age byte

// The ages.
const (
	Mixed Age = iota // not a segment: entries of both verdicts, in order
	Cold
	Warm
	Young
)

// Role is the purpose of an ACL in its slot.
type Role struct {
	Kind    Age
	Verdict entries.Verdict // of segments
}

func (r Role) isSegment() bool { return r.Kind != Mixed }

// ages are the letters of segments; denyingAges those of segments that deny.
const ages, denyingAges = "cwy", "CWY"

// String returns the letter of a segment, in upper case when it denies, and "" for other ACLs.
func (r Role) String() string {
	switch {
	case r.Kind == Mixed:
		return ""
	case r.Verdict == entries.Deny:
		return denyingAges[r.Kind-1 : r.Kind]
	}
	return ages[r.Kind-1 : r.Kind]
}

// RoleOf returns the role for the letter behind the number in a tag.
func RoleOf(letter byte) (Role, bool) {
	if i := strings.IndexByte(ages, letter); i >= 0 {
		return Role{Age(i + 1), entries.Reflect}, true
	}
	if i := strings.IndexByte(denyingAges, letter); i >= 0 {
		return Role{Age(i + 1), entries.Deny}, true
	}
	return Role{}, false
}
