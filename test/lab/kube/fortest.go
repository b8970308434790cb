package kube

import (
	"testing"
)

// ForTest starts a control plane for a test, and closes it afterwards. If the test failed, it prints the end of the
// logs. With -short it skips the test; a missing prerequisite fails the test.
func ForTest(t testing.TB, config Config) *ControlPlane {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a Kubernetes control plane: run without -short")
	}
	c, err := Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.showLogs(t)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *ControlPlane) showLogs(t testing.TB) {
	for _, p := range c.processes() {
		t.Logf("the last of %s:\n%s", p.Name, lastLines(p.log))
	}
}
