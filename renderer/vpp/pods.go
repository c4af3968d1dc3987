package vpp

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"
)

// PodTagPrefix is the prefix of the tags of pod interfaces.
const PodTagPrefix = "sluice/pod/"

// MaxTag is the maximum length of a tag in bytes: VPP uses 64 bytes with a terminating zero.
const MaxTag = 63

// PodTag returns the tag for an interface of a pod, given as namespace/name. A name that is too
// long is truncated and made unique by a hash.
func PodTag(pod string) string {
	tag := PodTagPrefix + pod
	if len(tag) <= MaxTag {
		return tag
	}
	sum := sha256.Sum256([]byte(tag))
	hash := "~" + hex.EncodeToString(sum[:8])
	return tag[:MaxTag-len(hash)] + hash
}

// CNIPrefix is the prefix of the names of sluice-cni's attachments.
const CNIPrefix = "slu"

// MadeByCNI reports whether an interface name is one that sluice-cni uses. sluice-cni leaves its
// interfaces down; the renderer that binds the rules of the pod sets them up, so that they are
// never up without rules. The name consists of the interface type and the attachment: host-slu...,
// tap-slu..., memif-slu....
func MadeByCNI(name string) bool {
	kind, attachment, _ := strings.Cut(name, "-")
	return strings.HasPrefix(attachment, CNIPrefix) && (kind == "host" || kind == "tap" || kind == "memif")
}

// sourceTag is the prefix of the tags of sluice-cni's MACIP lists.
const sourceTag = "sluice-cni:"

// SourceTag returns the tag of the MACIP list of an interface that sluice-cni made for a pod.
// hostIf is the name of the attachment, at most 15 bytes. The UID is omitted if it does not fit.
func SourceTag(hostIf, uid string) string {
	tag := sourceTag + hostIf
	if uid == "" || len(tag)+1+len(uid) > MaxTag {
		return tag
	}
	return tag + ":" + uid
}

// ParseSourceTag is the inverse of SourceTag. It returns false for foreign lists.
func ParseSourceTag(tag string) (hostIf, uid string, ok bool) {
	rest, ok := strings.CutPrefix(tag, sourceTag)
	hostIf, uid, _ = strings.Cut(rest, ":")
	return hostIf, uid, ok
}

// Made describes an interface that sluice-cni made: its pod and its addresses. VPP stores this as
// the MACIP list of the interface, so nothing that a pod sends can change it.
type Made struct {
	Tag string       // of the pod; see PodTag
	UID string       // of the pod; empty: unknown
	IPs []netip.Addr // assigned to the pod, in order
}
