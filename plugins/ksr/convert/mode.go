package convert

import (
	"github.com/sluice-net/sluice/api/model"
)

// The modes of a policy, in the annotation model.ModeAnnotation.
const (
	modeAudit   = "audit"
	modeEnforce = "enforce" // also without the annotation
)

// readAudit reports whether the annotations of a policy set audit mode. An unknown mode is
// reported, and the policy is enforced.
func readAudit(annotations map[string]string, at place) bool {
	mode, set := annotations[model.ModeAnnotation]
	if set && mode != modeAudit && mode != modeEnforce {
		at.child("metadata", "annotations").key(model.ModeAnnotation).errorf(
			"%s is not a mode: want %s or %s; the policy is enforced", model.Quoted(mode), modeAudit, modeEnforce)
	}
	return mode == modeAudit
}
