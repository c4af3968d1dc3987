package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// writeAll writes the three files of a workload, and the stats to w, too.
func writeAll(dir string, c *cluster, events eventLog, s stats, w io.Writer) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the output directory: %w", err)
	}
	if err := writeLines(filepath.Join(dir, "init.jsonl"), c.encode); err != nil {
		return err
	}
	if err := writeLines(filepath.Join(dir, "events.jsonl"), func(e *json.Encoder) error { return encodeAll(e, events) }); err != nil {
		return err
	}
	text, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return fmt.Errorf("encoding the stats: %w", err)
	}
	text = append(text, '\n')
	if err := os.WriteFile(filepath.Join(dir, "stats.json"), text, 0o644); err != nil {
		return fmt.Errorf("writing the stats: %w", err)
	}
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("printing the stats: %w", err)
	}
	return nil
}

// encode writes the objects in the order in which a client would list them. After an
// error the encoder writes nothing more.
func (c *cluster) encode(e *json.Encoder) error {
	return cmp.Or(encodeAll(e, c.namespaces), encodeAll(e, c.pods), encodeAll(e, c.policies), encodeAll(e, c.admin))
}

// encodeAll writes a line for each element, up to the first error.
func encodeAll[T any](e *json.Encoder, list []T) error {
	for _, x := range list {
		if err := e.Encode(x); err != nil {
			return err
		}
	}
	return nil
}

// writeLines makes a file of JSON lines. One that could not be written whole stays as
// it is.
func writeLines(path string, encode func(*json.Encoder) error) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("making an output file: %w", err)
	}
	defer func() {
		if closeErr := f.Close(); err == nil && closeErr != nil {
			err = fmt.Errorf("closing %s: %w", path, closeErr)
		}
	}()
	buffered := bufio.NewWriterSize(f, 1<<20)
	e := json.NewEncoder(buffered)
	e.SetEscapeHTML(false)
	if err := cmp.Or(encode(e), buffered.Flush()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
