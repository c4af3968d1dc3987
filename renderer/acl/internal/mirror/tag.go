package mirror

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

// OwnPrefix is the prefix of the tags of our ACLs.
const OwnPrefix = "sluice:"

// Tag returns the tag of an ACL with a name, the n-th of some.
func Tag(name string, n int, d entries.Digest) string {
	return fmt.Sprintf("%s%s:%d:%s", OwnPrefix, name, n, d)
}

// ParseTag parses a tag made by Tag. own is true for any tag with OwnPrefix, even if the rest cannot be
// parsed; then n is negative.
func ParseTag(tag string) (name string, n int, own bool) {
	rest, own := strings.CutPrefix(tag, OwnPrefix)
	if !own {
		return "", -1, false
	}
	name, rest, _ = strings.Cut(rest, ":")
	number, _, _ := strings.Cut(rest, ":")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 {
		n = -1
	}
	return name, n, true
}
