package vpp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/internal/vswitch/vswitchtest"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// release serves a vswitch on a socket as another release, in whose table of messages names and
// checksums are replaced by others of the same length.
func release(t *testing.T, version string, replaced ...string) (socket string) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	var listeners [2]net.Listener
	for i, name := range []string{"vswitch.sock", "api.sock"} {
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		listeners[i] = l
	}
	served := make(chan error, 1)
	sw := vswitchtest.New(t, vswitch.Options{Version: version})
	go func() { served <- sw.Serve(ctx, listeners[0]) }()
	t.Cleanup(func() {
		_ = listeners[1].Close()
		end()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	names := strings.NewReplacer(replaced...)
	go func() {
		for {
			client, err := listeners[1].Accept()
			if err != nil {
				return
			}
			go relay(client, listeners[0].Addr().String(), names)
		}
	}()
	return listeners[1].Addr().String()
}

// relay passes on what two ends send until one of them ends.
func relay(client net.Conn, socket string, names *strings.Replacer) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(server, client) // ends with the connection
		_ = server.Close()
	}()
	header := make([]byte, 16)
	for {
		if _, err := io.ReadFull(server, header); err != nil {
			return
		}
		body := make([]byte, int(header[8])<<24|int(header[9])<<16|int(header[10])<<8|int(header[11]))
		if _, err := io.ReadFull(server, body); err != nil {
			return
		}
		if _, err := client.Write(append(header, names.Replace(string(body))...)); err != nil {
			return
		}
		header = header[:16]
	}
}

func named(m govpp.Message) string { return m.GetMessageName() + "_" + m.GetCrcString() }

func TestVersionNamesWhatDiffers(t *testing.T) {
	uses := vpp.Uses{Part: "the acl plugin", Needed: []govpp.Message{&acl.ACLAddReplace{}, &acl.ACLDump{}}, Wanted: []govpp.Message{&vlib.ShowThreads{}}}
	for name, test := range map[string]struct {
		replaced []string
		refusal  []string // words of the error; none: there is no error
		logged   []string
		not      string
	}{
		"the same messages":              {},
		"a message that nothing uses":    {replaced: []string{"macip_acl_add_", "macip_acl_xyz_"}},
		"a wanted message":               {replaced: []string{named(&vlib.CliInband{}), "cli_inband_01234567"}, logged: []string{"26.06-test", "message cli_inband_01234567 in the place of " + named(&vlib.CliInband{})}},
		"the answer of a wanted message": {replaced: []string{named(&vlib.CliInbandReply{}), "cli_inband_reply_01234567"}, logged: []string{"cli_inband_reply_01234567"}},
		"a wanted message that is gone":  {replaced: []string{"cli_inband_", "cli_outside"}, logged: []string{"no message " + named(&vlib.CliInband{})}},
		"a needed message": {
			replaced: []string{named(&acl.ACLAddReplace{}), "acl_add_replace_01234567"}, not: "loaded?",
			refusal: []string{"vpp sluice-vswitch 26.06-test has message acl_add_replace_01234567 in the place of " + named(&acl.ACLAddReplace{})},
		},
		"the details of a dump":  {replaced: []string{named(&acl.ACLDetails{}), "acl_details_01234567"}, refusal: []string{"vpp sluice-vswitch 26.06-test", "acl_details_01234567 in the place of " + named(&acl.ACLDetails{})}},
		"a needed one is absent": {replaced: []string{"acl_", "xyz_"}, refusal: []string{"vpp sluice-vswitch 26.06-test has no message " + named(&acl.ACLAddReplace{}) + ", nor 3 others; is the acl plugin loaded?"}},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			l, err := vpp.Dial(vpp.Options{Socket: release(t, "26.06-test", test.replaced...), Client: "test", Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			connect(t, l)
			version, err := l.Version(t.Context(), uses)
			if version != "sluice-vswitch 26.06-test" || errors.Is(err, vpp.ErrIncompatible) != (test.refusal != nil) || (err != nil) != (test.refusal != nil) {
				t.Errorf("version %s: %v", version, err)
			}
			for _, want := range test.refusal {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
			for _, want := range test.logged {
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log does not say %q:\n%s", want, log.String())
				}
			}
			if test.not != "" && strings.Contains(err.Error(), test.not) {
				t.Errorf("%v says %q", err, test.not)
			}
			if test.logged == nil && strings.Contains(log.String(), "cli_inband") {
				t.Errorf("the log says\n%s", log.String())
			}
		})
	}
}
