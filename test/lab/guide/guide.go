// Package guide runs the commands in docs/kubernetes.md.
package guide

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// block matches a block of commands for tests. The word after "sh cluster" is its kind.
var block = regexp.MustCompile("(?ms)^```sh cluster ?(\\w*)\n(.*?)^```$")

// Commands returns the commands of the blocks of some kinds, in the order of the guide. A block without a
// kind has the kind "". It is an error if a kind has no block.
func Commands(kinds ...string) (string, error) {
	path, err := kube.FindSource("docs/kubernetes.md")
	if err != nil {
		return "", fmt.Errorf("find the guide: %w", err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the guide: %w", err)
	}
	var code strings.Builder
	missing := slices.Clone(kinds)
	for _, found := range block.FindAllStringSubmatch(string(text), -1) {
		if kind := found[1]; slices.Contains(kinds, kind) {
			code.WriteString(found[2])
			missing = slices.DeleteFunc(missing, func(k string) bool { return k == kind })
		}
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("docs/kubernetes.md has no commands of the kinds %q", missing)
	}
	return code.String(), nil
}
