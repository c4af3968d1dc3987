package acl

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// UplinkTag is the tag of the interfaces that connect the node with other nodes.
const UplinkTag = "sluice/uplink"

// ReleasedTag is the tag of an interface that was a pod's and is to be open. Without a tag such an
// interface stays closed.
const ReleasedTag = "sluice/released"

const ownPrefix = "sluice:"

// InterfaceTag returns the tag by which the interface of a pod is found. A name
// that is too long for a tag is cut and made unique by a hash.
func InterfaceTag(pod api.PodID) string { return vpp.PodTag(pod.String()) }

// aclTag returns the tag of the n-th ACL of a slot. The number of a segment has a
// letter for its age, in upper case when it denies.
func aclTag(slot string, n int, r layout.Role, d entries.Digest) string {
	return fmt.Sprintf("%s%s:%d%s:%s", ownPrefix, slot, n, r, d)
}

// parseTag reads a tag that aclTag made. Whatever begins like one is ours, also
// when the rest cannot be read.
func parseTag(tag string) (slot string, n int, r layout.Role, own bool) {
	rest, own := strings.CutPrefix(tag, ownPrefix)
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
