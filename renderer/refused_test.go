package renderer

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestIsRefusedRequiresEveryPartRefused(t *testing.T) {
	large, down := Refusal("too many rules"), errors.New("no connection")
	for name, tt := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":                         {nil, false},
		"a refusal":                       {large, true},
		"the error itself":                {ErrRefused, true},
		"a wrapped refusal":               {fmt.Errorf("renderer one: %w", fmt.Errorf("pod a: %w", large)), true},
		"two refusals":                    {errors.Join(large, fmt.Errorf("pod b: %w", large)), true},
		"an error that may pass":          {down, false},
		"a refusal beside such an error":  {errors.Join(large, down), false},
		"a refusal that may pass":         {fmt.Errorf("pod a: %w: %w", large, down), false},
		"a deadline":                      {fmt.Errorf("commit: %w", context.DeadlineExceeded), false},
		"a wrapped mixture, far within":   {fmt.Errorf("both: %w", errors.Join(fmt.Errorf("a: %w", large), fmt.Errorf("b: %w", down))), false},
		"a join that is joined once more": {errors.Join(errors.Join(large), large), true},
	} {
		if got := IsRefused(tt.err); got != tt.want {
			t.Errorf("%s: refused %t, want %t", name, got, tt.want)
		}
	}
	if !errors.Is(fmt.Errorf("pod a: %w", large), large) || large.Error() != "too many rules" {
		t.Errorf("%v is not found by itself", large)
	}
}
