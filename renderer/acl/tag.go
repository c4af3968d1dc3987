package acl

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// UplinkTag is the tag of the interfaces that connect the node with other nodes.
const UplinkTag = "sluice/uplink"

const (
	maxTag    = 63 // VPP's strings of 64 bytes end in a zero
	podTag    = "sluice/pod/"
	ownPrefix = "sluice:"
)

// InterfaceTag returns the tag by which the interface of a pod is found. A name
// that is too long for a tag is cut and made unique by a hash.
func InterfaceTag(pod api.PodID) string {
	tag := podTag + pod.String()
	if len(tag) <= maxTag {
		return tag
	}
	sum := sha256.Sum256([]byte(tag))
	hash := "~" + hex.EncodeToString(sum[:8])
	return tag[:maxTag-len(hash)] + hash
}

// aclTag returns the tag of the n-th ACL of a slot.
func aclTag(slot string, n int, d digest) string {
	return fmt.Sprintf("%s%s:%d:%s", ownPrefix, slot, n, d)
}

// parseTag reads a tag that aclTag made. Whatever begins like one is ours, also
// when the rest cannot be read.
func parseTag(tag string) (slot string, n int, own bool) {
	rest, own := strings.CutPrefix(tag, ownPrefix)
	if !own {
		return "", 0, false
	}
	slot, rest, _ = strings.Cut(rest, ":")
	number, _, _ := strings.Cut(rest, ":")
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || slot == "" {
		return "", 0, true
	}
	return slot, n, true
}
