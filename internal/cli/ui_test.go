package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/tests/lab/programs"
)

// page runs sluicectl ui until the test ends, and returns its address without the token, and that.
func page(t *testing.T, args ...string) (address, token string) {
	t.Helper()
	var out, errOut programs.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	cmd := NewCommand(nil, &out, &errOut)
	cmd.SetArgs(append([]string{"ui"}, args...))
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	programs.Eventually(t, func() error {
		for word := range strings.FieldsSeq(out.String()) {
			if u, err := url.Parse(word); err == nil && u.Scheme == "http" {
				token = strings.TrimPrefix(u.Fragment, "token=")
				u.Fragment = ""
				address = u.String()
				return nil
			}
		}
		return errors.New("no address is printed: " + out.String() + errOut.String())
	})
	return address, token
}

// ask sends a request to a page.
func ask(t *testing.T, method, address, token, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestUIShowsAnAgent, a bundle and manifests, to who has the token alone.
func TestUIShowsAnAgent(t *testing.T) {
	socket, file := realShop(t), filepath.Join(t.TempDir(), "b.tgz")
	if code, _, errOut := sluicectl(socket, "", "bundle", file); code == ExitError {
		t.Fatal(errOut)
	}
	change, err := os.ReadFile("../../docs/examples/preview/cart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	preview := `{"yaml":` + quoted(string(change)) + `}`
	tokens := map[string]bool{}
	for name, args := range map[string][]string{"agent": {"--socket", socket}, "bundle": {"--from", file}, "manifests": {"--manifests", "../../docs/examples/shop"}} {
		address, token := page(t, args...)
		if tokens[token] || len(token) != 64 {
			t.Errorf("%s: the token %s is not new", name, token)
		}
		tokens[token] = true
		verdicts, refused, why := "api/verdicts", 422, "the state is from files"
		if name == "agent" { // which streams, where the filters are valid
			verdicts, refused, why = "api/verdicts?action=drop", 400, "want deny, permit, all or audit"
		}
		for _, tc := range []struct {
			method, path, token, body string
			status                    int
			want                      string
		}{
			{"GET", "", "", "", 200, "<!DOCTYPE html>"},
			{"GET", "api/pods", "", "", 401, "token"},
			{"GET", "api/pods", strings.Repeat("0", 64), "", 401, "token"},
			{"GET", "api/pods", token, "", 200, `"total":13`},
			{"GET", "api/graph", token, "", 200, `"shop/web"`},
			{"GET", "api/pod?namespace=shop&name=web-0", token, "", 200, `"default-deny"`},
			{"GET", "api/status", token, "", 200, ""},
			{"GET", verdicts, token, "", refused, why},
			{"POST", "api/explain", token, `{"src":"shop/web-0","dst":"shop/cart-0","port":"http","protocol":"tcp"}`, 200, `"allowed":true`},
			{"POST", "api/preview", token, preview, 200, `"change":"opened"`},
			{"POST", "api/change", token, "{}", 405, ""},
		} {
			status, body := ask(t, tc.method, address+tc.path, tc.token, tc.body)
			if status != tc.status || !strings.Contains(body, tc.want) {
				t.Errorf("%s: %s %s: status %d, %.200s", name, tc.method, tc.path, status, body)
			}
		}
	}
}

func quoted(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(text) + `"`
}

// TestUIRefusesWhatMakesNoSense before it listens.
func TestUIRefusesWhatMakesNoSense(t *testing.T) {
	const shop = "../../docs/examples/shop"
	for want, args := range map[string][]string{
		"no agent listens":              {"--socket", "/nowhere/s"},
		`--from "x": want agent`:        {"--from", "x"},
		"--address: listen tcp":         {"--manifests", shop, "--address", "256.0.0.1:80"},
		"--address: listen":             {"--manifests", shop, "--address", "nowhere"},
		"no such file":                  {"--manifests", "nowhere"},
		"[from manifests] were all set": {"--manifests", shop, "--from", "agent"},
	} {
		var out, errOut bytes.Buffer
		if code := Run(append([]string{"ui"}, args...), strings.NewReader(""), &out, &errOut); code != ExitError || out.Len() > 0 || !strings.Contains(errOut.String(), want) {
			t.Errorf("%v: exit code %d, %q, %q", args, code, out.String(), errOut.String())
		}
	}
}
