package convert

import (
	"bytes"
	"testing"

	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/tests/lab/samples"
)

// podLine is a pod as kubectl writes it, in one line of JSON.
const podLine = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-0","namespace":"shop-0","uid":"0f8c6e0e-7a54-4a44-8d4f-000000000000","resourceVersion":"0","creationTimestamp":"2026-01-02T03:04:05Z","labels":{"app":"web","tier":"front","version":"v0"}},"spec":{"nodeName":"n0","restartPolicy":"Always","containers":[{"name":"c","image":"web:1","ports":[{"name":"http","containerPort":8080,"protocol":"TCP"},{"name":"metrics","containerPort":9090}],"resources":{"requests":{"cpu":"100m","memory":"128Mi"}}}]},"status":{"phase":"Running","hostIP":"192.168.0.0","hostIPs":[{"ip":"192.168.0.0"}],"podIP":"10.1.0.0","podIPs":[{"ip":"10.1.0.0"},{"ip":"fd00::1"}]}}`

// decodeAll reads manifests that are right.
func decodeAll(tb testing.TB, in []byte, want int) []kinds.Object {
	objs, problems := decodeText(bytes.NewReader(in), "bench")
	if len(objs) != want || len(problems) > 0 {
		tb.Fatalf("%d objects of %d, problems %v", len(objs), want, problems)
	}
	return objs
}

func BenchmarkConvert(b *testing.B) {
	pod := decodeAll(b, []byte(podLine), 1)[0].Object
	policy := decodeAll(b, []byte(samples.Policy(samples.GoodPolicy)), 1)[0].Object
	for name, obj := range map[string]any{"pod": pod, "policy": policy} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if msg, problems := ToModel(obj); msg == nil || len(problems) > 0 {
					b.Fatal(problems)
				}
			}
		})
	}
}
