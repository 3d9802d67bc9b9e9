"""Mistakes on the command line."""

from __future__ import annotations

from testing.bad_inputs.case import Case, cases, command

# A training on an image folder that would begin.
FOLDER = "train folder --set data.root={images} --set model.pretrained=false --set data.batch_size=4"
LINES = """
nonsense
train
train nope
train digts
train {file}
train {empty}
train missing.yaml
train digits --nonsense
train digits --set
train digits --set epochs
train digits --set =3
train digits --set epochs.shrink
train digits --set epochs.shrnk=3
train digits --set epochs=3 --out {new}
train digits --set model=3 --out {new}
train digits --set nope.key=1 --out {new}
train digits --set "epochs.shrink=[" --out {new}
train digits --set optimizer.lr=fast --out {new}
train digits --set model.name.inner=3 --out {new}
train digits --devices 0
train digits --devices many
train digits --out {file}
train digits --out {file}/inside
train digits --out ""
train digits --out {new} --resume
train digits --out /proc/nothing/here
train digits --set data.root={images} --out {new}
train digits --set data.name=mnist --out {new}
train digits --set data.name=folder --out {new}
train digits --set data.batch_size=5000 --out {new}
train digits --set model.name=resnet2 --out {new}
train digits --set model.name=timm:resnet1 --out {new}
train digits --set model.name=torchvision:resnet1 --out {new}
train digits --set model.name=os:getcwd --out {new}
train digits --set model.name=os:getcwd --trust --out {new}
train digits --set model.name=nowhere.nothing:make --trust --out {new}
train digits --set model.name=pcshrink.models:nothing --trust --out {new}
train digits --set model.weights=missing.pt --out {new}
train digits --set model.weights={file} --out {new}
train cifar10-resnet20-dense --set model.start={empty} --set data.name=digits --set data.root=null --out {new}
train digits --set model.pretrained=true --out {new}
train digits --set shrink.budget=null --set shrink.like={empty} --out {new}
train digits --set shrink.align=999 --out {new}
train digits --set output.nope=1 --out {new}
train folder --set data.root={empty} --set model.pretrained=false --out {new}
train folder --set data.root=missing --set model.pretrained=false --out {new}
demo --out {file}
demo --nope
recipes nope
recipes digits extra
eval
eval missing
eval {empty}
eval {file}
eval {saved}
eval {saved} --data mnist
eval {saved} --data cifar10
eval {saved} --data cifar10 --root {empty}
eval {saved} --data folder
eval {saved} --data folder --root missing
eval {saved} --data folder --root {images}
eval {saved} --data folder --root {file}
eval {saved} --data folder --root {images} --classes missing.txt
eval {saved} --data folder --root {images} --classes {file}
eval {saved} --data digits --classes {file}
eval {saved} --data digits --root {images}
eval {saved} --data os:getcwd
eval {bare} --data digits
inspect
inspect nope
inspect resnet20 --input 3
inspect resnet20 --input 3,a,b
inspect resnet20 --input 0,32,32
inspect resnet20 --input 1,3,32,32
inspect resnet20 --input 4,32,32
inspect resnet20 --input ""
inspect resnet20 --ratio 0
inspect resnet20 --ratio 1
inspect resnet20 --ratio half
inspect resnet20 --align 0
inspect resnet20 --align 999
inspect resnet20 --html {empty}
inspect json:dumps
inspect torchvision:resnet1
inspect timm:resnet1
export
export missing
export {empty}
export {file}
export {saved} --format tflite
export {saved} --format os:getcwd
export {saved} --batch 0
export {saved} --batch many
export {saved} --batch 1,2
export {saved} --batch -3
export {saved} --input 3,9,9
export {saved} --input x
export {saved} --out {empty}
export {saved} --out {file}/model.onnx
export {saved} --format openvino --out model.onnx
export {bare}
export {bare} --model nope
export {bare} --model resnet20
export {saved} --model resnet20
bench
bench missing
bench {saved} --seconds 0
bench {saved} --seconds -1
bench {saved} --seconds nan
bench {saved} --threads 0
bench {saved} --threads 100000
bench {run} {run}/model
bench {saved} --batch 0
bench {saved} --batch 1,,2
bench {saved} --runtime tensorrt
bench {saved} --input 3,8,8 --runtime eager
bench {saved} {saved}
bench {saved} --why --runtime eager --seconds 0.01
bench {bare} --dense
widths --runtime nope
widths --threads 0
info
info missing
info {empty}
info {file}
predict
predict {saved}
predict {saved} missing.png
predict {saved} {file}
predict {saved} {empty}
predict {saved} {picture} --top 0
predict missing {picture}
predict {empty} {picture}
predict {bare} {picture}
predict {onnx} {picture}
predict missing.onnx {picture}
predict {file} {picture}
data nope
data cifar10
data cifar10 --root {file}
data cifar10 --root {empty} --source missing.tar.gz
data cifar10 --root {empty} --source {file}
data check
data check missing
data check {file}
data check {empty}
data check {images} --classes missing
data check {images} --classes {file}
data check missing-*.tar
data shards
data shards {images}
data shards missing --out {new}
data shards {empty} --out {new}
data shards {images} --out {saved}
data shards {images} --out {file}
data shards {images} --out {new} --size much
data shards {images} --out {new} --size 0
train digits --set data.name=webdataset --out {new}
train folder --set data.name=webdataset --set data.root={empty} --set model.pretrained=false --out {new}
train folder --set data.name=webdataset --set data.root={file} --set model.pretrained=false --out {new}
eval {saved} --data webdataset --root {images}
eval {saved} --data webdataset --root missing-{{0..3}}.tar
report
report missing
report {empty}
report {saved}
report {run} --live -1
report {run} --time --runtime nope
methods nope
compare digits
compare digits --out {new} --methods nope
compare digits --out {new} --methods pcs,,random
compare digits --out {new} --budgets half
compare digits --out {new} --budgets 0
compare digits --out {new} --budgets 1.5
compare digits --out {new} --seeds 0
compare digits --out {new} --jobs 0
compare digits --out {new} --weights missing.pt
compare nope --out {new}
compare digits --out {file}
ablate digits --out {new}
ablate digits --out {new} --over nope
ablate digits --out {new} --over shrink.nope=1,2
ablate digits --out {new} --over shrink.alpha=1,2
ablate digits --out {new} --table nope
shrink
shrink nope --images {images} --budget madds=0.5 --out {new}
shrink resnet20 --images missing --budget madds=0.5 --out {new}
shrink resnet20 --images {empty} --budget madds=0.5 --out {new}
shrink resnet20 --images {file} --budget madds=0.5 --out {new}
shrink resnet20 --images {images} --budget half --out {new}
shrink resnet20 --images {images} --budget "" --out {new}
shrink resnet20 --images {images} --budget madds --out {new}
shrink resnet20 --images {images} --budget madds=0 --out {new}
shrink resnet20 --images {images} --budget madds=1.5 --out {new}
shrink resnet20 --images {images} --budget madds=nan --out {new}
shrink resnet20 --images {images} --budget latency=-1 --out {new}
shrink resnet20 --images {images} --budget max-drop=0 --out {new}
shrink resnet20 --images {images} --budget max-drop=inf --out {new}
shrink resnet20 --images {images} --budget madds=0.5
shrink resnet20 --images {images} --budget madds=0.5 --out {new}
shrink resnet20 --images {images} --budget madds=0.5 --out ""
shrink resnet20 --images {images} --budget madds=0.5 --out {file}
shrink resnet20 --images {images} --budget madds=0.5 --out {new} --weights missing.pt
shrink resnet20 --images {images} --budget madds=0.5 --out {new} --weights {file}
shrink resnet20 --images {images} --budget madds=0.5 --out {new} --weights {picture}
shrink resnet20 --images {images} --budget madds=0.5 --out {new} --weights {weights} --hours 0
shrink resnet20 --images {images} --budget madds=0.5 --out {new} --weights {weights} --hours -1
shrink resnet20 --images {images} --budget madds=0.5 --out {new} --weights {weights} --hours nan
shrink resnet20 --images {images} --budget madds=0.5 --out {new} --weights {weights} --hours inf
shrink resnet20 --images {images} --budget madds=0.5 --out {new} --weights {weights} --seed -1
shrink resnet20 --images {images} --budget madds=0.5 --out {new} --weights {weights} --threads 0
shrink resnet20 --images {images} --budget madds=0.5 --out {new} --weights {weights} --set nope=1
shrink resnet20 --images {images} --budget madds=0.5 --out {new} --weights {weights} --set shrink.budget=nope
shrink resnet20 --images {images} --budget madds=0.5 --out {new} --weights {weights} --resume
shrink resnet20 --images {images} --budget madds=0.5 --out {new} --no-labels
shrink os:getcwd --images {images} --budget madds=0.5 --out {new}
shrink timm:resnet1 --images {images} --budget madds=0.5 --out {new}
export {saved} --int8
export {saved} --int8 --images missing
export {saved} --int8 --images {empty}
export {saved} --int8 --images {file}
export {saved} --images {images}
export {saved} --int8 --images {images} --format pt2
export {saved} --format ""
export {saved} --out ""
bench {saved} --seconds inf
bench {saved} --runtime ""
bench {saved} --batch ""
bench {saved} --model nope
eval {saved} --data ""
eval ""
info ""
info {picture}
predict {saved} {picture} --top many
predict {saved} ""
predict "" {picture}
predict {saved} {saved}
report ""
report {file}
report {run} --out {empty}
report {run} --csv {file}
report {run} --svg {file}
report {run} --figure nope --csv {new}
report {run} --figure tradeoff
report {run} --runtime nope
report {run} {run}
compare
compare digits --out {new} --methods ""
compare digits --out {new} --methods pcs+nope=1
compare digits --out {new} --methods pcs+alpha=7
compare digits --out {new} --budgets ""
compare digits --out {new} --budgets nan
compare digits --out {new} --seeds -1
compare digits --out {new} --set nope=1
compare digits --out ""
compare digits --out {new} --weights {file}
ablate
ablate digits --out {new} --over ""
ablate digits --out {new} --over shrink.alpha
ablate digits --out {new} --over shrink.alpha=
ablate digits --out {new} --over shrink.alpha=0.1,0.2 --table k
ablate digits --out {new} --over shrink.alpha=0.1,0.2 --jobs 0
ablate digits --out {new} --over shrink.alpha=0.1,0.2 --seeds 0
ablate nope --out {new} --over shrink.alpha=0.1,0.2
data shards {images} --out ""
data shards {images} --out {new} --size -5MB
data shards {images} --out {new} --size nan
data shards {file} --out {new}
data shards {images} --out {images}
data check ""
doctor extra
doctor --nope
recipes ""
methods ""
widths --batch 0
inspect ""
inspect resnet20 --ratio nan
inspect resnet20 --input 3,32,32,32
inspect resnet20 --html ""
demo --out ""
train digits --set epochs.shrink=nan --out {new}
train "" --out {new}
train digits --set model.args.in_channels=3 --out {new}
train digits --set "model.args={{image_size: x}}" --out {new}
train digits --set seed=99999999999999999999999 --out {new}
train digits --out {run}
train digits --out {saved}
train {saved} --out {new}
train {weights} --out {new}
train {picture} --out {new}
{folder} --set model.name=timm:test_vit --set "model.args={{img_size: x}}" --out {new}
{folder} --set model.name=timm:test_vit --set "model.args={{img_size: 7}}" --out {new}
{folder} --set model.name=timm:test_vit --set "model.args={{in_chans: 5}}" --out {new}
{folder} --set data.image_size=[1,2,3] --out {new}
{folder} --set data.classes=[cat] --out {new}
train folder --set data.root={images} --set model.pretrained=false --set data.batch_size=9 --out {new}
info {onnx}
eval {weights}
bench {onnx}
bench {saved} {larger}
predict {weights} {picture}
inspect {saved}
inspect timm:
inspect :resnet20
inspect resnet20 --input 3,32,-1
inspect resnet20 --input 3,9999999,9999999
export {saved} --batch 1.5
export {saved} --batch 99999999999
export {saved} --out model.txt
export {saved} --format pt2 --out model.onnx
export {saved} --out /proc/x.onnx
--nope
""".strip().splitlines()


def command_line() -> list[Case]:
    """Every line as a case."""
    import shlex

    return cases("command line", [(line, command(*shlex.split(line.replace("{folder}", FOLDER)))) for line in LINES])
