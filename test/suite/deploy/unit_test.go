package deploy

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// TestAgentsHaveTheSameCapabilities: the container and the systemd unit of the agent have the
// capabilities that docs/security.md lists.
func TestAgentsHaveTheSameCapabilities(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(root + "/" + name)
		require.NoError(t, err)
		return string(text)
	}
	var set appsv1.DaemonSet
	require.NoError(t, yaml.UnmarshalStrict([]byte(read("deploy/kubernetes/agent/daemonset.yaml")), &set))
	var container []string
	for _, name := range set.Spec.Template.Spec.Containers[0].SecurityContext.Capabilities.Add {
		container = append(container, string(name))
	}

	bounds := regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.*)$`).FindAllStringSubmatch(read("deploy/systemd/coe-bridge-agent.service"), -1)
	require.Len(t, bounds, 1)
	unit := strings.Fields(strings.ReplaceAll(bounds[0][1], "CAP_", ""))

	_, section, _ := strings.Cut(read("docs/security.md"), "\n## What a captured agent container can do\n")
	_, table, _ := strings.Cut(section, "\n| capability |")
	table, _, _ = strings.Cut(table, "\n\n")
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z_]+)` \\|").FindAllStringSubmatch(table, -1) {
		listed = append(listed, row[1])
	}

	for _, names := range [][]string{container, unit, listed} {
		slices.Sort(names)
	}
	require.NotEmpty(t, container)
	require.Equal(t, container, unit)
	require.Equal(t, container, listed)
}
