package vpp

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"
)

// PodTagPrefix begins the tags of interfaces of pods.
const PodTagPrefix = "sluice/pod/"

// MaxTag is how long a tag may be, in bytes: VPP's strings of 64 bytes end in a zero.
const MaxTag = 63

// PodTag returns the tag of an interface that is a pod's, which is given as namespace/name. A name
// that is too long for a tag is cut and made unique by a hash.
func PodTag(pod string) string {
	tag := PodTagPrefix + pod
	if len(tag) <= MaxTag {
		return tag
	}
	sum := sha256.Sum256([]byte(tag))
	hash := "~" + hex.EncodeToString(sum[:8])
	return tag[:MaxTag-len(hash)] + hash
}

// CNIPrefix begins what sluice-cni names attachments by.
const CNIPrefix = "slu"

// MadeByCNI reports whether an interface has the name of one that sluice-cni makes, and leaves
// down: whoever binds the rules of the pod sets it up, so that it is never up without rules. The
// name is that of its kind, and of the attachment: host-slu..., tap-slu..., memif-slu....
func MadeByCNI(name string) bool {
	kind, attachment, _ := strings.Cut(name, "-")
	return strings.HasPrefix(attachment, CNIPrefix) && (kind == "host" || kind == "tap" || kind == "memif")
}

// sourceTag begins the tags of the lists of sources that sluice-cni makes.
const sourceTag = "sluice-cni:"

// SourceTag returns the tag of the list of sources (MACIP) of an interface that sluice-cni made for
// a pod, by the name of the attachment, of 15 bytes at most. The UID is left out where a tag has no
// room for it.
func SourceTag(hostIf, uid string) string {
	tag := sourceTag + hostIf
	if uid == "" || len(tag)+1+len(uid) > MaxTag {
		return tag
	}
	return tag + ":" + uid
}

// ParseSourceTag is the inverse of SourceTag; false for the list of somebody else.
func ParseSourceTag(tag string) (hostIf, uid string, ok bool) {
	rest, ok := strings.CutPrefix(tag, sourceTag)
	hostIf, uid, _ = strings.Cut(rest, ":")
	return hostIf, uid, ok
}

// Made is what VPP says of an interface that sluice-cni made: whose it is, and with which
// addresses. It is what the list of sources of the interface permits, so nothing that a pod sends
// changes it.
type Made struct {
	Tag string       // that of a pod, see PodTag
	UID string       // of the pod; empty: not known
	IPs []netip.Addr // that the pod got, in order
}
