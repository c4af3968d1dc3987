package term

import (
	"fmt"
	"strings"
)

// Count writes how many things there are: "1 policy", "2 policies". The thing is in the singular.
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %s", n, plural(thing))
}

func plural(thing string) string {
	last := thing[len(thing)-1]
	switch before, isY := strings.CutSuffix(thing, "y"); {
	case isY && !strings.ContainsAny(before[len(before)-1:], "aeiou"):
		return before + "ies"
	case last == 's' || last == 'x' || strings.HasSuffix(thing, "ch") || strings.HasSuffix(thing, "sh"):
		return thing + "es"
	}
	return thing + "s"
}
