package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/lib/serve"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/tests/lab/described"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

const secret = "0123456789abcdef0123456789abcdef"

// of returns the handler of a page about a state.
func of(m explain.Manifests, g Guard) http.Handler {
	return Handler(Source{Name: "a test", State: func(context.Context) (explain.Manifests, error) { return m, nil }}, g)
}

// ask sends a request as the page does.
func ask(h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = "127.0.0.1:8417"
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

// answer decodes a good answer.
func answer[T any](t *testing.T, rec *httptest.ResponseRecorder) (out T) {
	t.Helper()
	if rec.Code != http.StatusOK {
		t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestUIPageIsComplete: every file that another one names is there, with its type, and nothing
// comes from elsewhere.
func TestUIPageIsComplete(t *testing.T) {
	h := of(explain.Manifests{}, Guard{Token: secret})
	if rec := ask(h, "GET", Path, ""); rec.Code != http.StatusOK || !strings.HasPrefix(rec.Header().Get("Content-Type"), "text/html") {
		t.Fatalf("the page: %d, %v", rec.Code, rec.Header())
	}
	named := regexp.MustCompile(`(?:from '\./|href="|src=")([a-z]+\.(?:js|css|svg))`)
	abroad := regexp.MustCompile(`https?://[^\s'"]*`)
	files, found := map[string]string{}, 0
	if err := fs.WalkDir(assets, "assets", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(assets, path)
		files[strings.TrimPrefix(path, "assets/")] = string(b)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			found++
			if rec := ask(h, "GET", Path+m[1], ""); rec.Code != http.StatusOK || rec.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s names %s: status %d", name, m[1], rec.Code)
			}
		}
		for _, url := range abroad.FindAllString(text, -1) {
			if url != "http://www.w3.org/2000/svg" {
				t.Errorf("%s names %s", name, url)
			}
		}
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser", "style=", "onclick=", "localStorage", "setAttribute('style"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s has %s", name, bad)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d names were found", found)
	}
	csp := ask(h, "GET", Path, "").Header().Get("Content-Security-Policy")
	if strings.Contains(csp, "unsafe") || !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") {
		t.Errorf("the policy is %s", csp)
	}
}

// TestGuardRefusesOtherNames: a name that leads to the page's address by the will of another owner.
func TestGuardRefusesOtherNames(t *testing.T) {
	h := of(explain.Manifests{}, Guard{Hosts: []string{"node-1.example"}})
	for host, want := range map[string]int{
		"127.0.0.1:8417": 200, "localhost": 200, "LOCALHOST:1": 200, "[::1]:8417": 200, "10.0.0.7": 200, "node-1.example:8417": 200, "NODE-1.example": 200,
		"evil.example": 421, "evil.example:8417": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example": 421, "": 421, ":80": 421, "node-1.example.": 421, "a b": 421,
	} {
		for _, path := range []string{Path, Path + "api/about"} {
			if got := ask(h, "GET", path, "", "Host", host).Code; got != want && (want != 421 || got != 400) {
				t.Errorf("%s by the name %q: status %d, want %d", path, host, got, want)
			}
		}
	}
}

// TestGuardRefusesOtherSites: the pages of others can neither ask nor read an answer.
func TestGuardRefusesOtherSites(t *testing.T) {
	h := of(described.Read(t, "../../docs/examples/shop"), Guard{})
	for _, header := range [][]string{
		{"Origin", "http://evil.example"}, {"Origin", "null"}, {"Origin", "http://127.0.0.1:9999"}, {"Origin", "://"},
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Sec-Fetch-Site", "something"},
	} {
		for _, path := range []string{"about", "graph", "pods", "verdicts"} {
			if got := ask(h, "GET", Path+"api/"+path, "", header...).Code; got != http.StatusForbidden {
				t.Errorf("%s of %v: status %d", path, header, got)
			}
		}
	}
	for _, header := range [][]string{nil, {"Origin", "http://127.0.0.1:8417", "Sec-Fetch-Site", "same-origin"}, {"Sec-Fetch-Site", "none"}} {
		rec := ask(h, "GET", Path+"api/about", "", header...)
		if rec.Code != http.StatusOK {
			t.Errorf("%v: status %d", header, rec.Code)
		}
		for name := range rec.Header() {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("the answer has %s", name)
			}
		}
	}
}

// TestGuardWantsTheToken for everything but the files of the page.
func TestGuardWantsTheToken(t *testing.T) {
	h := of(described.Read(t, "../../docs/examples/shop"), Guard{Token: secret})
	for token, want := range map[string]int{
		"": 401, "Bearer ": 401, secret: 401, "Bearer " + secret[:31]: 401, "Bearer " + secret + "x": 401, "bearer " + secret: 401, "Basic " + secret: 401,
		"Bearer " + strings.ToUpper(secret): 401, "Bearer " + secret: 200,
	} {
		if got := ask(h, "GET", Path+"api/pods", "", "Authorization", token).Code; got != want {
			t.Errorf("%q: status %d, want %d", token, got, want)
		}
	}
	if got := ask(h, "GET", Path+"api/pods?token="+secret, "").Code; got != http.StatusUnauthorized {
		t.Errorf("a token in the address, which logs have: status %d", got)
	}
	for token, ok := range map[string]bool{"": false, "short": false, strings.Repeat("x", 23): false, strings.Repeat("x", 24): true, strings.Repeat("x y", 20): false, strings.Repeat("ä", 20): false} {
		if err := CheckToken(token); (err == nil) != ok {
			t.Errorf("%q: %v", token, err)
		}
	}
}

// TestHandlerHasNoOtherMethods: nothing can be changed.
func TestHandlerHasNoOtherMethods(t *testing.T) {
	h := of(described.Read(t, "../../docs/examples/shop"), Guard{})
	for _, path := range []string{"", "app.js", "api/pods", "api/graph", "api/nothing", "api/explain"} {
		for _, method := range []string{"PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT"} {
			if got := ask(h, method, Path+path, "").Code; got != http.StatusMethodNotAllowed && got != http.StatusNotFound {
				t.Errorf("%s %s: status %d", method, path, got)
			}
		}
	}
	for _, path := range []string{"api/nothing", "../cli/cli.go", "assets/app.js", "%2e%2e/ui.go"} {
		if got := ask(h, "GET", Path+path, "").Code; got == http.StatusOK {
			t.Errorf("%s is there", path)
		}
	}
}

// TestHandlerAnswersAboutTheShop: each question once.
func TestHandlerAnswersAboutTheShop(t *testing.T) {
	h := of(described.Read(t, "../../docs/examples/shop"), Guard{})
	g := answer[drawn](t, ask(h, "GET", Path+"api/graph", ""))
	if len(g.Nodes) != len(g.Layout.Boxes) || len(g.Edges) != len(g.Layout.Lines) || len(g.Edges) < 20 || g.Examples["shop/web"] != "shop/web-0" {
		t.Errorf("the graph has %d nodes, %d boxes, %d edges, %d lines, examples %v", len(g.Nodes), len(g.Layout.Boxes), len(g.Edges), len(g.Layout.Lines), g.Examples)
	}
	if d := answer[drawn](t, ask(h, "GET", Path+"api/graph?denied=true&namespace=shop", "")); len(d.Edges) < 20 {
		t.Errorf("with denied edges there are %d", len(d.Edges))
	}
	if m := answer[view.Matrix](t, ask(h, "GET", Path+"api/matrix", "")); len(m.Groups) != 15 {
		t.Errorf("the matrix has %d groups", len(m.Groups))
	}
	if a := answer[about](t, ask(h, "GET", Path+"api/about", "")); a.Pods != 13 || a.Live || len(a.Namespaces) != 3 {
		t.Errorf("about: %+v", a)
	}
	p := answer[podView](t, ask(h, "GET", Path+"api/pod?namespace=shop&name=web-0", ""))
	if len(p.Policies) != 4 || len(p.Naming) != 5 || len(p.Isolated) != 2 {
		t.Errorf("the pod has %d policies, %d rules name it, isolated %v", len(p.Policies), len(p.Naming), p.Isolated)
	}
	e := answer[explanation](t, ask(h, "POST", Path+"api/explain", `{"src":"shop/web-0","dst":"data/postgres-0","port":"5432","protocol":"tcp"}`))
	if e.Allowed || !strings.HasPrefix(e.Text, "DENIED") || len(e.Answers) != 1 || len(e.Whole) <= len(e.Text) {
		t.Errorf("allowed %t, %d answers: %s", e.Allowed, len(e.Answers), e.Text)
	}
	if s := answer[status](t, ask(h, "GET", Path+"api/status", "")); s.Status != nil || s.Why == "" {
		t.Errorf("status: %+v", s)
	}
}

// TestPodsComeInPages: and are found by names, addresses and labels.
func TestPodsComeInPages(t *testing.T) {
	h := of(described.Read(t, "../../docs/examples/shop"), Guard{})
	for query, want := range map[string][2]int{ // on the page, in all
		"": {13, 13}, "?most=5": {5, 13}, "?most=5&from=10": {3, 13}, "?from=99": {0, 13}, "?most=0": {0, 13}, "?text=WEB": {2, 2}, "?text=app%3Dweb": {2, 2}, "?text=10.10.1.10": {1, 1},
		"?namespace=data": {3, 3}, "?namespace=none": {0, 0}, "?text=%1b%5b": {0, 0}, "?most=99999999": {13, 13},
	} {
		got := answer[podPage](t, ask(h, "GET", Path+"api/pods"+query, ""))
		if len(got.Pods) != want[0] || got.Total != want[1] || got.Pods == nil {
			t.Errorf("%q: %d of %d, want %v", query, len(got.Pods), got.Total, want)
		}
	}
}

// TestHandlerRefusesBadQuestions with one clear error each.
func TestHandlerRefusesBadQuestions(t *testing.T) {
	h := of(described.Read(t, "../../docs/examples/shop"), Guard{})
	for _, tc := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "pods?from=x", "", 400, `"x" is not a number`},
		{"GET", "pods?most=-1", "", 400, `"-1" is not a number`},
		{"GET", "pod?namespace=shop&name=none", "", 404, "there is no pod shop/none"},
		{"GET", "graph?namespace=none", "", 422, `--namespace "none": no pod`},
		{"GET", "verdicts?action=some", "", 400, `action "some"`},
		{"GET", "verdicts?peer=x", "", 400, `peer "x" is neither`},
		{"GET", "verdicts", "", 422, "the state is from files"},
		{"POST", "explain", "", 400, "invalid request"},
		{"POST", "explain", `{"src":1}`, 400, "invalid request"},
		{"POST", "explain", `{"newer":1,"src":"shop/none","dst":"shop/web-0","port":"80","protocol":"tcp"}`, 422, "shop/none"},
		{"POST", "explain", `{"src":"shop/none","dst":"shop/web-0","port":"80","protocol":"tcp"}`, 422, "shop/none"},
		{"POST", "preview", `{"yaml":""}`, 422, "paste manifests"},
		{"POST", "preview", `{"yaml":"{]"}`, 422, "stdin"},
		{"POST", "preview", `{"yaml":"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: x, namespace: shop}\nspec: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: no}}]}]}"}`, 422, "cidr"},
		{"POST", "preview", `{"yaml":"apiVersion: v1\nkind: Namespace\nmetadata: {name: nowhere}","delete":true}`, 422, "does not exist"},
		{"POST", "preview", `{"yaml":"` + strings.Repeat("x", maxQuestion) + `"}`, 413, "too large"},
	} {
		rec := ask(h, tc.method, Path+"api/"+tc.path, tc.body)
		if rec.Code != tc.status || !strings.Contains(rec.Body.String(), tc.want) || !strings.HasPrefix(rec.Header().Get("Content-Type"), "text/plain") {
			t.Errorf("%s %s %.60s: status %d, %.300s", tc.method, tc.path, tc.body, rec.Code, rec.Body)
		}
	}
}

// TestPreviewShowsWhatAChangeDoes: as rows, as a graph, and in words.
func TestPreviewShowsWhatAChangeDoes(t *testing.T) {
	h := of(described.Read(t, "../../docs/examples/shop"), Guard{})
	text, err := os.ReadFile("../../docs/examples/preview/cart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		q      wanted
		opened bool
		closed bool
	}{{wanted{YAML: string(text)}, true, true}, {wanted{YAML: "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: cart, namespace: shop}\nspec: {podSelector: {}}", Delete: true}, false, true}} {
		body, err := json.Marshal(tc.q)
		if err != nil {
			t.Fatal(err)
		}
		got := answer[previewed](t, ask(h, "POST", Path+"api/preview", string(body)))
		if got.Opens() != tc.opened || got.Closes() != tc.closed || len(got.Graph.Edges) == 0 || !got.Graph.Compared || got.Text == "" {
			t.Errorf("%.80q: opens %t, closes %t, %d edges", tc.q.YAML, got.Opens(), got.Closes(), len(got.Graph.Edges))
		}
	}
}

// TestAnswersHoldHostileNamesAsData: no answer is markup, whatever it holds.
func TestAnswersHoldHostileNamesAsData(t *testing.T) {
	name := "<script>alert(1)</script>\x1b[2J\u202e" + strings.Repeat("x", 1<<20)
	m := explain.Manifests{}
	m.Add(&model.Namespace{Name: "n"})
	m.Add(&model.Pod{Namespace: "n", Name: name, NodeName: name, Ips: []string{"10.0.0.1"}, Phase: model.Pod_PHASE_RUNNING, Labels: []*model.Label{{Key: "app", Value: name}}})
	h := of(m, Guard{})
	for _, path := range []string{"graph", "matrix", "pods", "about"} {
		rec := ask(h, "GET", Path+"api/"+path, "")
		if rec.Code != http.StatusOK || rec.Header().Get("Content-Type") != "application/json" || strings.Contains(rec.Body.String(), "<script") || strings.ContainsAny(rec.Body.String(), "\x1b") {
			t.Errorf("%s: status %d, %v, %.200q", path, rec.Code, rec.Header(), rec.Body)
		}
	}
}

// TestUIReadsStateOnceForManyQuestions, and again when it is old; an error is not kept.
func TestUIReadsStateOnceForManyQuestions(t *testing.T) {
	var reads atomic.Int32
	fails := true
	h := Handler(Source{State: func(context.Context) (explain.Manifests, error) {
		reads.Add(1)
		if fails {
			return explain.Manifests{}, errors.New("the store does not answer")
		}
		return described.Read(t, "../../docs/examples/shop"), nil
	}}, Guard{})
	if rec := ask(h, "GET", Path+"api/about", ""); rec.Code != http.StatusUnprocessableEntity || !strings.Contains(rec.Body.String(), "the store does not answer") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	fails = false
	for range 5 {
		answer[about](t, ask(h, "GET", Path+"api/about", ""))
	}
	if n := reads.Load(); n > 3 { // on a slow machine the state may get old
		t.Errorf("the state was read %d times", n)
	}
}

// watched is an agent of which only verdicts matter: it sends some as fast as they are taken.
type watched struct {
	Agent
	open atomic.Int32
	err  error
	send int // verdicts; 0: none, and the stream stays open
}

func (a *watched) Watch(ctx context.Context, _ view.Watch, begun func(), send func(any) error) error {
	if a.err != nil {
		return a.err
	}
	a.open.Add(1)
	defer a.open.Add(-1)
	begun()
	for range a.send {
		if send(view.PacketVerdict{Reason: "<b>\nnext: line" + strings.Repeat("x", 1000)}) != nil {
			return nil
		}
	}
	<-ctx.Done()
	return nil
}

// streaming serves a page of an agent over TCP, and returns where.
func streaming(t *testing.T, a Agent, patience time.Duration) string {
	t.Helper()
	handlerOf := func() http.Handler {
		h := &handler{Source: Source{Agent: a}, watching: newTurns(streams), patience: patience, tick: time.Tick}
		return http.HandlerFunc(h.verdicts)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve.Server{Handler: handlerOf(), Log: slog.New(slog.DiscardHandler)}.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

// TestVerdictsAreServerSentEvents: each value is one event, whatever its texts hold.
func TestVerdictsAreServerSentEvents(t *testing.T) {
	resp, err := http.Get(streaming(t, &watched{send: 3}, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("the type is %s", got)
	}
	var text string
	for b := make([]byte, 4096); strings.Count(text, "\n\n") < 4; {
		n, err := resp.Body.Read(b)
		if text += string(b[:n]); err != nil {
			t.Fatal(err)
		}
	}
	events := strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n")
	for i, e := range events[1:] {
		var v view.PacketVerdict
		data, ok := strings.CutPrefix(e, "data: ")
		if err := json.Unmarshal([]byte(data), &v); !ok || err != nil || !strings.HasPrefix(v.Reason, "<b>\nnext: line") || strings.Contains(e, "<b>") {
			t.Errorf("event %d is %.100q: %v", i, e, err)
		}
	}
}

// TestVerdictsAreForSoManyClients, and one that leaves makes room.
func TestVerdictsAreForSoManyClients(t *testing.T) {
	a := &watched{}
	url := streaming(t, a, time.Minute)
	var open []io.Closer
	for i := range streams {
		resp, err := http.Get(url)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("client %d: %v, %v", i, resp, err)
		}
		open = append(open, resp.Body)
	}
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one more gets status %d, %v", resp.StatusCode, err)
	}
	for _, c := range open {
		_ = c.Close()
	}
	programs.Eventually(t, func() error {
		if n := a.open.Load(); n > 0 {
			return fmt.Errorf("%d clients that have gone are still watched for", n)
		}
		return nil
	})
}

// TestVerdictsCutWhoDoesNotRead: nothing waits for ever.
func TestVerdictsCutWhoDoesNotRead(t *testing.T) {
	a := &watched{send: 1 << 30}
	c, err := net.Dial("tcp", strings.TrimPrefix(streaming(t, a, 50*time.Millisecond), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	begun := false
	programs.Eventually(t, func() error {
		n := a.open.Load()
		if begun = begun || n > 0; n > 0 || !begun {
			return fmt.Errorf("%d streams are open", n)
		}
		return nil
	})
}

// TestVerdictsSayWhyThereAreNone: before the stream begins it is an error of the request.
func TestVerdictsSayWhyThereAreNone(t *testing.T) {
	resp, err := http.Get(streaming(t, &watched{err: errors.New("the kernel does not enforce")}, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusUnprocessableEntity || string(b) != "the kernel does not enforce\n" {
		t.Errorf("status %d, %q, %v", resp.StatusCode, b, err)
	}
}

// TestTurnsAreBounded: who waits too long gets an error.
func TestTurnsAreBounded(t *testing.T) {
	one := newTurns(1)
	done, err := one.wait(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one.wait(t.Context(), time.Millisecond); !errors.Is(err, errBusy) {
		t.Errorf("a second one gets %v", err)
	}
	done()
	if _, err := one.wait(t.Context(), 0); err != nil {
		t.Errorf("after the first one: %v", err)
	}
}
