package model

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
)

var update = flag.Bool("update", false, "write testdata/level.txt")

// TestLevelIsThatOfModel fails when the model has changed without a review of Level.
func TestLevelIsThatOfModel(t *testing.T) {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(protodesc.ToFileDescriptorProto(File_api_model_model_proto))
	if err != nil {
		t.Fatal(err)
	}
	now := fmt.Sprintf("level %d\nmodel %x\n", Level, sha256.Sum256(text))
	const golden = "testdata/level.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if now != string(want) {
		t.Errorf("the model or its level has changed:\n%swas\n%sread the comment of Level, raise it if a reader has to know what is new, "+
			"and then: go test ./api/model -run Level -update", now, strings.TrimSpace(string(want))+"\n")
	}
}
