package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// patience is how long one step may take. A machine may be busy.
const patience = 3 * time.Minute

// await asks until there is no error.
func await(what string, ask func() error) error {
	deadline := time.Now().Add(patience)
	for {
		err := ask()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %s for %s: %w", patience, what, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// enableAll has the children of a cgroup of version 2 have all its controllers.
func enableAll(dir, controllers string) error {
	var text strings.Builder
	for c := range strings.FieldsSeq(controllers) {
		fmt.Fprintf(&text, "+%s ", c)
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(text.String()), 0o644)
}
