package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestShownHasEverySettingAndNoSecret reads all settings from flags.
func TestShownHasEverySettingAndNoSecret(t *testing.T) {
	flags := flagsOf(t, "--etcd-password", "s3cret", "--ui-token-file", "/etc/s3cret", "--etcd-endpoints", "https://me:s3cret@etcd.example:2379,http://a b:s3cret@x")
	cfg, err := Load(flags, nil)
	if err != nil {
		t.Fatal(err)
	}
	shown := cfg.Shown()
	if text := fmt.Sprint(shown); strings.Contains(text, "s3cret") || !strings.Contains(text, "https://etcd.example:2379") {
		t.Errorf("shown: %s", text)
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if _, ok := shown[f.Name]; !ok && f.Name != "config" {
			t.Errorf("--%s is not shown", f.Name)
		}
	})
	if f := flags.Lookup("etcd-password"); f == nil || shown["etcd-password"] != hidden {
		t.Errorf("the password is shown as %v", shown["etcd-password"])
	}
	flags.VisitAll(func(f *pflag.Flag) { // a new secret has to be named
		if strings.Contains(f.Name, "password") || strings.Contains(f.Name, "token") {
			if shown[f.Name] != hidden {
				t.Errorf("--%s is shown", f.Name)
			}
		}
	})
}
