package policy

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"
)

// BenchmarkEvent measures one change from the source to the Apply of a Recorder,
// in a cluster of 10 000 pods of which 100 are local.
func BenchmarkEvent(b *testing.B) {
	objects := []proto.Message{ns()}
	for i := range 10_000 {
		objects = append(objects, pod(i, []string{"web", "front", "other"}[i%3], i < 100))
	}
	for i := range uint32(20) {
		objects = append(objects, allow(string(rune('a'+i)), "front", "web", 80+2*i))
	}
	p, _ := startRecorded(b, Deps{}, "one")
	mustApply(b, p, changes(b, true, objects...))
	for _, tt := range []struct {
		name     string
		there    proto.Message
		notThere model.Changes
	}{
		{"a remote peer comes and goes", pod(10_001, "front", false), deletion(model.KindPod, "pod-10001")},
		{"a local pod comes and goes", pod(10_002, "web", true), deletion(model.KindPod, "pod-10002")},
		{"a policy comes and goes", allow("new", "other", "web", 443), deletion(model.KindNetworkPolicy, "new")},
	} {
		b.Run(tt.name, func(b *testing.B) {
			there := changes(b, false, tt.there)
			b.ReportAllocs()
			for b.Loop() {
				mustApply(b, p, there)
				mustApply(b, p, tt.notThere)
			}
		})
	}
}
