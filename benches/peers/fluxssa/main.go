// fluxssa applies or deletes the objects of a folder the way kustomize-controller does: fluxcd/pkg/ssa, its owner
// labels, its default of four objects at a time.
//
// It prints the seconds from the first file read to the last object done. Starting the process is not counted.
package main

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/normalize"
	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"stratum.ciq.com/peers/cluster"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file")
	folder := flag.String("folder", "", "folder with YAML files")
	mode := flag.String("mode", "apply", "apply (also for a pass without changes), or delete")
	concurrency := flag.Int("concurrency", 4, "objects at a time")
	flag.Parse()
	log.SetLogger(klog.Background())

	manager := newManager(cluster.Config(*kubeconfig), *concurrency)
	began := time.Now()
	objects := read(*folder)
	manager.SetOwnerLabels(objects, "bench", "default")
	changes, err := run(manager, objects, *mode)
	cluster.Check(err)

	actions := map[string]int{}
	for _, entry := range changes.Entries {
		actions[string(entry.Action)]++
	}
	cluster.Print(map[string]any{
		"objects": len(objects),
		"actions": actions,
		"seconds": time.Since(began).Seconds(),
	})
}

func newManager(config *rest.Config, concurrency int) *ssa.ResourceManager {
	httpClient, err := rest.HTTPClientFor(config)
	cluster.Check(err)
	mapper, err := apiutil.NewDynamicRESTMapper(config, httpClient)
	cluster.Check(err)
	api, err := client.New(config, client.Options{HTTPClient: httpClient, Mapper: mapper})
	cluster.Check(err)
	poller := polling.NewStatusPoller(api, mapper, polling.Options{})
	manager := ssa.NewResourceManager(api, poller, ssa.Owner{Field: "bench-flux", Group: "bench.stratum.ciq.com"})
	manager.SetConcurrency(concurrency)
	return manager
}

func run(manager *ssa.ResourceManager, objects []*unstructured.Unstructured, mode string) (*ssa.ChangeSet, error) {
	switch mode {
	case "apply":
		cluster.Check(normalize.UnstructuredList(objects))
		return manager.ApplyAllStaged(context.Background(), objects, ssa.DefaultApplyOptions())
	case "delete":
		options := ssa.DefaultDeleteOptions()
		options.Inclusions = manager.GetOwnerLabels("bench", "default")
		return manager.DeleteAll(context.Background(), objects, options)
	default:
		return nil, fmt.Errorf("mode %q is neither apply nor delete", mode)
	}
}

func read(folder string) []*unstructured.Unstructured {
	var objects []*unstructured.Unstructured
	cluster.Check(filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		found, err := utils.ReadObjects(file)
		objects = append(objects, found...)
		return err
	}))
	return objects
}
