package kvstore_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
)

// TestWriteTakesLargestValue: a server with etcd's default settings accepts what all components
// accept, below the longest key and beside other entries; for larger values it returns an error
// that leaves the client usable.
func TestWriteTakesLargestValue(t *testing.T) {
	s := server(t, embedded.Config{})
	c := dial(t, s.Endpoints()...)
	long := func(n int) string { return string(bytes.Repeat([]byte("a"), n)) }
	largest := model.Entry{
		Key:   model.Key(model.DefaultPrefix, model.ID{Kind: model.KindNetworkPolicy, Namespace: long(model.MaxNamespace), Name: long(model.MaxName)}),
		Value: bytes.Repeat([]byte{'x'}, model.MaxValue),
	}
	small := model.Entry{Key: model.Root(model.DefaultPrefix) + "pod/a/b", Value: []byte("y")}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.Write(ctx, []model.Entry{small, largest}, nil); err != nil {
		t.Fatal(err)
	}
	beyond := largest
	beyond.Value = bytes.Repeat([]byte{'x'}, 2<<20)
	if err := c.Write(ctx, []model.Entry{beyond}, nil); err == nil || len(err.Error()) > 1000 {
		t.Errorf("a value beyond every limit: %.300v", err)
	}
	got, _, err := c.List(ctx, model.Root(model.DefaultPrefix))
	if err != nil || len(got) != 2 || !bytes.Equal(got[0].Value, largest.Value) {
		t.Errorf("%d entries are read, %v", len(got), err)
	}
}
