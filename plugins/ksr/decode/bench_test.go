package decode

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/tests/lab/samples"
)

// podLine is a pod as kubectl writes it, in one line of JSON.
func podLine(i int) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-%d","namespace":"shop-%d","uid":"0f8c6e0e-7a54-4a44-8d4f-%012d","resourceVersion":"%d","creationTimestamp":"2026-01-02T03:04:05Z","labels":{"app":"web","tier":"front","version":"v%d"}},"spec":{"nodeName":"n%d","restartPolicy":"Always","containers":[{"name":"c","image":"web:1","ports":[{"name":"http","containerPort":8080,"protocol":"TCP"},{"name":"metrics","containerPort":9090}],"resources":{"requests":{"cpu":"100m","memory":"128Mi"}}}]},"status":{"phase":"Running","hostIP":"192.168.0.%d","hostIPs":[{"ip":"192.168.0.%d"}],"podIP":"10.1.%d.%d","podIPs":[{"ip":"10.1.%d.%d"},{"ip":"fd00::%x"}]}}`,
		i, i%50, i, i, i%9, i%20, i%20, i%20, i>>8&255, i&255, i>>8&255, i&255, i+1)
}

func podLines(n int) []byte {
	var b strings.Builder
	for i := range n {
		b.WriteString(podLine(i) + "\n")
	}
	return []byte(b.String())
}

func decodeAll(tb testing.TB, in []byte, want int) []kinds.Object {
	objs, problems := decodeText(bytes.NewReader(in), "bench")
	if len(objs) != want || len(problems) > 0 {
		tb.Fatalf("%d objects of %d, problems %v", len(objs), want, problems)
	}
	return objs
}

func BenchmarkDecode(b *testing.B) {
	const n = 1000
	lines := podLines(n)
	list := []byte(`{"apiVersion":"v1","kind":"List","items":[` + strings.Join(strings.Split(strings.TrimSpace(string(lines)), "\n"), ",") + `]}`)
	var yaml strings.Builder
	for i := range n {
		yaml.WriteString(strings.Replace(samples.Policy(samples.GoodPolicy), "name: web", fmt.Sprintf("name: web-%d", i), 1) + "---\n")
	}
	for name, in := range map[string][]byte{"pods/lines": lines, "pods/list": list, "policies/yaml": []byte(yaml.String())} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				decodeAll(b, in, n)
			}
		})
	}
}
