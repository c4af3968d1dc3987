package mirror

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
)

// OwnPrefix is the prefix of the tags of our ACLs.
const OwnPrefix = "sluice:"

// Tag returns the tag of the n-th ACL of a slot. A segment has a letter for its age behind the
// number, in upper case when it denies.
func Tag(slot string, n int, r layout.Role, d entries.Digest) string {
	return fmt.Sprintf("%s%s:%d%s:%s", OwnPrefix, slot, n, r, d)
}

// ParseTag parses a tag made by Tag. own is true for any tag with OwnPrefix, even if the rest
// cannot be parsed.
func ParseTag(tag string) (slot string, n int, r layout.Role, own bool) {
	rest, own := strings.CutPrefix(tag, OwnPrefix)
	if !own {
		return "", 0, layout.Role{}, false
	}
	slot, rest, _ = strings.Cut(rest, ":")
	number, _, _ := strings.Cut(rest, ":")
	if last := len(number) - 1; last > 0 {
		var ok bool
		if r, ok = layout.RoleOf(number[last]); ok {
			number = number[:last]
		}
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || slot == "" {
		return "", 0, layout.Role{}, true
	}
	return slot, n, r, true
}
