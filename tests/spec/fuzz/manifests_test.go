package fuzz

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

// beside is two pods that policies of a text may be about.
const beside = `
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {containers: [{name: c, ports: [{name: http, containerPort: 80}]}]}
status: {phase: Running, podIP: 10.0.0.1}
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop, labels: {app: db}}
spec: {containers: [{name: c, ports: [{name: sql, containerPort: 5432}, {name: dns, containerPort: 53, protocol: UDP}]}]}
status: {phase: Running, podIPs: [{ip: 10.0.0.2}, {ip: 'fd00::2'}]}
`

// FuzzManifests sends the text of manifests down the flow: decode, convert, the bytes of the store
// and back, cache, processor, configurator, recorder. The verdicts are never more open than the
// oracle's for the objects that were accepted, and equal to them when no problem was reported.
// There are two pods in addition to the objects of the text.
func FuzzManifests(f *testing.F) {
	f.Fuzz(func(t *testing.T, text []byte) {
		objects, problems := manifests.Decode(io.MultiReader(bytes.NewReader(text), strings.NewReader(beside)), "f")
		objects = append(objects, kinds.ImpliedNamespaces(objects)...)
		state, kept := split(objects)
		state = oneNode(state)
		if contested(state) {
			return
		}
		var messages []proto.Message
		for _, o := range kept {
			m, found := convert.ToModel(o)
			if m == nil {
				t.Fatalf("refused when it is on another node: %v", found)
			}
			problems = append(problems, found...)
			messages = append(messages, stored(t, m))
		}
		r, changes := newRooms(t), resync(t, messages)
		r.apply(changes)
		before := r.recorder.Operations()
		neverMoreOpen(t, state, r.recorder, len(problems) == 0)
		if r.apply(changes); r.recorder.Operations() != before {
			t.Errorf("equal input makes %d operations", r.recorder.Operations()-before)
		}
	})
}
