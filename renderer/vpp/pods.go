package vpp

import (
	"crypto/sha256"
	"encoding/hex"
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

// CNIPrefix begins the names of interfaces that sluice-cni makes, and leaves down: whoever binds the
// rules of the pod sets them up, so that they are never up without rules.
const CNIPrefix = "host-slu"
