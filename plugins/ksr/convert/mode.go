package convert

import (
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

// The modes of a policy, in the annotation kinds.ModeAnnotation.
const (
	modeAudit   = "audit"
	modeEnforce = "enforce" // also without the annotation
)

// readAudit reports whether the annotations of a policy set audit mode. An unknown mode is
// reported, and the policy is enforced.
func readAudit(annotations map[string]string, at place) bool {
	mode, set := annotations[kinds.ModeAnnotation]
	if set && mode != modeAudit && mode != modeEnforce {
		at.child("metadata", "annotations").key(kinds.ModeAnnotation).errorf(
			"%s is not a mode: want %s or %s; the policy is enforced", model.Quoted(mode), modeAudit, modeEnforce)
	}
	return mode == modeAudit
}
