"""How languages state an answer: a row each, of patterns. foreign.py has the one rule that reads them all."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Language:
    """How one language states an answer: patterns, in which a blank stands for one or more.

    Words that English has too stand in phrases only. `spaced` languages have a border at each end of a word.

    signs        words that show the language where letters do not: no English words
    answer       what the answer is called, with the adjectives that go with it
    is_          what may stand between it and the answer, or between a letter and a word about it
    article      before a letter or an option
    option       what a letter is called, before it
    choose       before a letter that is chosen; choose_after: behind it
    right        said of a letter; wrong: the contrary, also as a phrase
    not_         before what is rejected; not_after: behind it
    but          before what is right instead
    and_         between letters or numbers
    because      before a reason; so: before a conclusion, or in passing: "is therefore"
    if_          before a statement that is only supposed; if_after: behind it
    times        behind a number that is to be calculated with
    point_groups whether 12.500 is written for 12 500
    """

    signs: str = ""
    spaced: bool = True
    point_groups: bool = False
    answer: str
    is_: str
    article: str = ""
    option: str = ""
    choose: str = ""
    choose_after: str = ""
    right: str
    wrong: str
    not_: str = ""
    not_after: str = ""
    but: str = ""
    and_: str
    because: str = ""
    so: str = ""
    if_: str = ""
    if_after: str = ""
    times: str = ""


LANGUAGES = (
    Language(  # Chinese
        spaced=False,
        answer="(?:最终|最后|最終|最後|正确|正確|标准|本题|该题|此题|的)*答案(?:选项|選項)?|答(?=\\s*:)"
        "|(?:正确|正確|最佳|最合适|符合题意|符合題意)的?(?:选项|選項|选择|選擇|说法|一项|(?=是))",
        is_="(?:应该|应当|應該|应|應|可能|就|也|才|只能|都|均|全)*(?:是|为|為|选择?(?!项)|選擇?(?!項)|等于|等於)|都|均|全|项|選?項|选项",
        option="选项|選項",
        choose="(?<![会會能误誤不若])(?:选(?!项|手|出|自)择?|選(?!項|手|出|自)擇?)",
        right="(?:正确|正確|成立|符合题意|符合題意|符合要求|[对對](?![^\\W\\d_的]))的?",
        wrong="(?:并|也|是)*不(?:太|够|是)?(?:正确|正確|对|對|成立|符合题意|符合題意|符合要求|准确|可能)|错误?的?|錯誤?的?|有误|有誤|排除",
        not_="(?:而|并|也|绝|絕)*(?:不(?:是|应该?选|應該?選|该选|能选|选择?(?!项)|選擇?(?!項)|为|等于)|并?非)",
        but="而?(?:应该?|應該?|就)?(?:是|为|選|选)",
        and_="和|与|與|以?及|或|跟",
        because="因为|因為|由于|由於|理由是|原因是",
        so="所以|因此|因而|故(?!事|障|意)|于是|综上所述|也?就是|即",
        if_="如果|假如|假设|倘若|要是|若|不认为|不覺得|不觉得|有人[会會]?[说說认認][为為]?|误以为|误认为",
        times="乘以?|加上?|减去?|减|除以?|倍|的|分之",
    ),
    Language(  # Japanese
        spaced=False,
        answer="(?:最終的な|正しい|最終)?(?:答え|解答|回答|正答|正解)|(?:正しい|最も適切な|適切な)(?:選択肢|もの|の)(?=[はが])|答(?=\\s*[は:])",
        is_="[はがも]|です|である",
        option="選択肢|項目",
        choose_after="を?(?:選[ぶびんぼ択]|選択)",
        right="正しい|正解|正答|適切(?!で)|当てはまる|妥当(?!で)|合っている",
        wrong="(?:正しく|適切で|正解で|妥当で|当てはまら)は?(?:ない|ありません|なく)|間違[いっ]|誤[りっ]|不正解|不適切|違[ういっ]",
        not_after="(?:では|じゃ|でも|で)なく(?:て)?|(?:では|じゃ)(?:ない|ありません)",
        but="むしろ",
        and_="と|や|および|及び|または|か",
        because="なぜなら|というのも|理由は",
        so="したがって|従って|よって|だから|ゆえに|つまり|すなわち|以上より",
        if_="もし|仮に",
        if_after="(?:だ|である)?(?:なら|であれば|とすると|とは思|と仮定)|だったら|かもしれ",
        times="かける|足す|引く|割る|倍|の",
    ),
    Language(  # Korean
        spaced=False,
        answer="(?:(?:최종|올바른|옳은|맞는|정확한) ?)*(?<![가-힣])(?:정답|답안|답변|해답|답)"
        "|(?:올바른|옳은|맞는|정확한|가장 적절한) ?(?:선택지|보기|것)",
        is_="(?:번|만)?(?:은|는|이|가)(?!다)|이다|입니다|번|으로는|모두|둘 다",
        option="선택지|보기|옵션",
        choose_after="(?:번)?(?:을|를)? ?(?:선택|고르|고릅|골라|고른|택)",
        right="정답(?! ?이? ?아)|맞(?!지)|옳(?!지)|올바(?!르지)|참(?:이|입)|적절(?!하지)|정확(?!하지)",
        wrong="틀|오답|잘못|거짓|부적절|정답이? ?아[니닙]|(?:맞|옳|적절하|올바르|정확하)지 ?않",
        not_after="번? ?(?:이|가|은|는)? ?(?:아니[라고며다]|아닙니다|아닌|말고)",
        but="오히려",
        and_="와|과|및|이랑|또는|하고",
        because="왜냐하면|때문",
        so="따라서|그러므로|그래서|즉|결국",
        if_="만약|만일",
        if_after="번?이?(?:라면|면|라고 하면|라고 생각하지)",
        times="곱하기|더하기|빼기|나누기|배|의",
    ),
    Language(  # Spanish
        signs="respuesta respuestas solución es sino correcta incorrecta porque opción elijo escojo entonces",
        point_groups=True,
        answer="respuestas?(?: (?:final|correcta|adecuada|buena|acertada))*|(?:opción|opcion|alternativa"
        "|solución) (?:correcta|final|adecuada)"
        "|soluci(?:ón|on|ones)(?= (?:es|son|final))|resultado final|correcta(?= es)",
        is_="es|era|sería|será|(?:debe|debería|tiene que) ser|corresponde a|son|está|están",
        article="la|el|lo|las|los",
        option="opci[oó]n|alternativa|inciso|literal|letra|respuesta",
        choose="elijo|escojo|selecciono|elegimos|escogemos|elegiría|me quedo con|opto por",
        right="(?:la )?(?:opción )?(?:correct|verdader|adecuad|válid|ciert)[ao]s?",
        wrong="(?:incorrect|fals|erróne|inválid|equivocad|descartad)[ao]s?|no (?:es|son) (?:correct|verdader"
        "|adecuad|válid|ciert)[ao]s?",
        not_="(?:y )?no (?:es|son|era|sería|puede ser)|y no|no(?= (?:la|el) )|ni",
        but="sino(?: que (?:es|sea)| más bien)?|pero sí",
        and_="y|e|o|u",
        because="porque|ya que|puesto que|dado que|debido a|pues",
        so="por (?:lo )?tanto|entonces|así que|por ende|en consecuencia|es decir|o sea",
        if_="si|no creo que|no pienso que|no digo que|alguien diría que",
        times="por|veces|más|menos|dividido|multiplicado|entre|de",
    ),
    Language(  # Portuguese
        signs="resposta é não são porque pois opção alternativa correta errada escolho portanto então mas",
        point_groups=True,
        answer="respostas?(?: (?:final|correta|certa|correcta|adequada))*|(?:opção|alternativa|letra"
        "|solução) (?:correta|certa|final)"
        "|soluç(?:ão|ões)(?= (?:é|são|final))|gabarito|resultado final|correta(?= é)",
        is_="é|era|seria|será|deve ser|são|está|estão",
        article="a|o|as|os",
        option="opção|alternativa|letra|item|resposta",
        choose="escolho|escolhemos|seleciono|opto por|fico com|escolheria",
        right="(?:a )?(?:opção )?(?:corret|cert|verdadeir|adequad)[ao]s?",
        wrong="(?:incorret|errad|fals|inválid)[ao]s?|não (?:é|são|está|estão) (?:corret|cert|verdadeir|adequad)[ao]s?",
        not_="(?:e )?não(?: (?:é|são|era|seria|pode ser))?|nem",
        but="mas(?: sim)?|e sim",
        and_="e|ou",
        because="porque|pois|já que|uma vez que|visto que",
        so="portanto|então|logo|assim|ou seja",
        if_="se|não acho que|não penso que",
        times="vezes|mais|menos|dividido|multiplicado|de",
    ),
    Language(  # French
        signs="réponse reponse est sont pas mais parce donc choisis correcte fausse bonne",
        answer="(?:(?:bonne|meilleure|seule) )*r[ée]ponses?(?: (?:finale|correcte|exacte|juste))*"
        "|bon(?:ne)? (?:option|choix|proposition)"
        "|(?:option|proposition|solution) (?:correcte|exacte)|solutions?(?= (?:est|sont))|choix correct"
        "|résultat final",
        is_="est|était|serait|sera|doit être|sont",
        article="la|le|les|l['’]",
        option="option|proposition|choix|lettre|r[ée]ponse",
        choose="je choisis|nous choisissons|on choisit|j['’]opte pour|je sélectionne|il faut choisir",
        right="(?:correct|exact|vrai)e?s?|justes?|valides?|la bonne",
        wrong="(?:incorrect|inexact)e?s?|faux|fausses?|erronée?s?|à écarter|éliminée?s?"
        "|n['’](?:est|sont) pas (?:(?:correct|exact|vrai)e?s?|justes?|valides?|la bonne)",
        not_="(?:ce )?n['’](?:est|était) pas|(?:et )?(?:non )?pas|et non|non(?= (?:la|le) )|ni",
        but="mais(?: plutôt| bien)?",
        and_="et|ou",
        because="parce qu[e'’]|car|puisqu[e'’]|étant donné",
        so="donc|alors|ainsi|par conséquent|d['’]où|c['’]est-à-dire",
        if_="si|je ne (?:pense|crois) pas que",
        times="fois|plus|moins|divisé|multiplié|sur|de",
    ),
    Language(  # German
        signs="antwort lösung ist sind nicht sondern richtig falsch wähle weil und endergebnis",
        point_groups=True,
        answer="(?:(?:richtig|korrekt|endgültig|final|best|zutreffend|gesucht|einzig)e[rsn]? )*"
        "(?:Endantwort|Antwort(?:en|option|möglichkeit)?|Lösung(?:en)?|Endergebnis)|(?:richtig"
        "|korrekt)e (?:Option|Auswahl|Wahl)"
        "|(?:richtig|korrekt)(?= (?:ist|wäre) )",
        is_="ist|lautet|wäre|sind|beträgt|muss",
        article="die|der|das|den",
        option="Option|Antwort(?:option|möglichkeit)?|Möglichkeit|Buchstabe|Variante",
        choose="ich wähle|wir wählen|wähle|ich entscheide mich für|ich nehme",
        right="(?:die )?(?:richtig|korrekt|wahr|zutreffend)(?:e[rsn]?)?|stimmt(?! nicht)|trifft zu",
        wrong="(?:falsch|inkorrekt|unrichtig|unzutreffend|ausgeschlossen)(?:e[rsn]?)?|(?:ist "
        "|sind )?nicht (?:richtig|korrekt|wahr|zutreffend)"
        "|stimmt nicht|trifft nicht zu|scheidet aus",
        not_="(?:und )?nicht|(?:und )?keine?|weder|noch",
        but="sondern(?! auch)",
        and_="und|oder|sowie",
        because="weil|da|denn|wegen",
        so="also|daher|somit|folglich|demnach|das hei(?:ß|ss)t|d\\.h\\.",
        if_="wenn|falls|angenommen",
        times="mal|plus|minus|durch|geteilt|von",
    ),
    Language(  # Italian
        signs="risposta è sono non bensì perché scelgo corretta quindi",
        point_groups=True,
        answer="rispost[ae](?: (?:finale|corretta|esatta|giusta))*|(?:opzione|alternativa|soluzione) (?:corretta"
        "|esatta|giusta)|soluzion[ei](?= (?:è|sono))",
        is_="è|era|sarebbe|sarà|deve essere|sono",
        article="la|il|lo|l['’]",
        option="opzione|lettera|alternativa|risposta",
        choose="scelgo|scegliamo|seleziono|opto per",
        right="(?:la )?(?:corrett|giust|esatt|ver)[aoie]",
        wrong="(?:errat|sbagliat|scorrett|fals)[aoie]|non (?:è|sono) (?:la )?(?:corrett|giust|esatt|ver)[aoie]",
        not_="(?:e )?non (?:è|sono)|e non|non(?= (?:la|il) )|né",
        but="ma|bensì",
        and_="e|o",
        because="perché|poiché|in quanto|dato che",
        so="quindi|dunque|perciò|pertanto|cioè",
        if_="se",
        times="per|volte|più|meno|diviso|di",
    ),
    Language(  # Russian
        answer="(?:(?:правильн|верн|итогов|окончательн|финальн)[а-яё]+ )*ответ(?:ом|а|ы)?"
        "|(?:правильн|верн)[а-яё]+ (?:вариант(?:ом)?|выбор|утверждение)(?: ответа)?|правильно(?=\\s*:)",
        is_="это|является|являются|будет|равен|равно|равняется|—|–",
        option="вариант(?: ответа)?|пункт|буква|опция|ответ",
        choose="выбираю|выбираем|выберу|выберем|следует выбрать|нужно выбрать",
        right="верн[а-яё]*|верен|правильн[а-яё]*|подход[а-яё]*|истин[а-яё]*",
        wrong="не ?(?:верн[а-яё]*|верен|правильн[а-яё]*|подход[а-яё]*|истин[а-яё]*)|ошибоч[а-яё]*|лож[а-яё]+",
        not_="(?:а |и )?не(?: является| равен)?|ни",
        but="а|но",
        and_="и|или|а также",
        because="потому что|так как|поскольку|ведь|ибо",
        so="поэтому|значит|следовательно|итак|таким образом|то есть|т\\. ?е\\.",
        if_="если|не думаю, что|не считаю, что",
        times="умножить|плюс|минус|раза?|делить|разделить|из",
    ),
    Language(  # Arabic
        answer="[وف]?(?:ال)?(?:إجابة|اجابة|جواب)(?: (?:ال)?(?:صحيحة|صحيح|نهائية|نهائي))*|[وف]?(?:ال)?(?:خيار"
        "|اختيار) (?:ال)?صحيح|[وف]?الحل",
        is_="هي|هو|تكون|يكون|ستكون",
        option="(?:ال)?(?:خيار|اختيار|حرف|إجابة|بديل)",
        choose="[أن]ختار|سأختار|اخترت",
        right="(?:ال)?(?:صحيحة|صحيح|صحيحان|صواب)",
        wrong="غير (?:ال)?صحيحة?|خطأ|خاطئة?|خاطئان|ليست? صحيحة?",
        not_="و?ليست?(?: هي| هو)?|و?لا|غير",
        but="بل(?: هي| هو)?|و?إنما|و?لكن",
        and_="و|أو",
        because="لأن[^\\W\\d_]{0,3}|بسبب|حيث",
        so="إذن|إذا|لذلك|وبالتالي|أي",
        if_="إذا كانت?|لو كانت?|لا أعتقد أن",
        times="ضرب|زائد|ناقص|من",
    ),
    Language(  # Hindi
        answer="(?:(?:सही|अंतिम|सटीक|इसका) )*(?:उत्तर|जवाब)|सही (?:विकल्प|चुनाव)",
        is_="है|हैं|होगा|होगी|ही|दोनों",
        option="विकल्प|उत्तर",
        choose_after="(?:को )?चुन[^\\W\\d_\\s]*[\u0900-\u097f]*",
        right="सही|ठीक|सत्य|उचित",
        wrong="गलत|ग़लत|असत्य|अनुचित|सही नहीं",
        not_="न कि|ना कि",
        not_after="नहीं(?: है| हैं)?",
        but="बल्कि|लेकिन|परंतु",
        and_="और|या|एवं|तथा",
        because="क्योंकि|चूँकि",
        so="इसलिए|अतः|यानी|अर्थात",
        if_="यदि|अगर",
        times="गुणा|जोड़|का|की|के",
    ),
    Language(  # Bengali
        answer="(?:(?:সঠিক|চূড়ান্ত) )*(?:উত্তরটি|উত্তরঃ|উত্তর)|সঠিক বিকল্প",
        is_="হল|হলো|হবে|হচ্ছে",
        option="বিকল্প|অপশন",
        choose_after="(?:কে )?বেছে",
        right="সঠিক|ঠিক",
        wrong="ভুল|সঠিক নয়",
        not_after="নয়|না",
        but="বরং",
        and_="এবং|ও|বা",
        because="কারণ",
        so="সুতরাং|অতএব|তাই",
        if_="যদি",
    ),
    Language(  # Turkish
        signs="cevap cevabı yanıt değil doğru yanlış çünkü yanlıştır doğrudur seçiyorum",
        point_groups=True,
        answer="(?:(?:doğru|nihai|son) )*(?:cevap|cevabı|cevabımız|yanıt|yanıtı)|doğru (?:seçenek|şık)",
        is_="şıkkı|seçeneği|olarak|olmalı",
        option="seçenek|şık",
        choose_after="(?:['’]?[yn]?[iıuü] )?(?:seçiyorum|seçerim|seçiyoruz)",
        right="doğru(?:dur)?",
        wrong="yanlış(?:tır)?|hatalı(?:dır)?|doğru değil(?:dir)?",
        not_after="(?:şıkkı |seçeneği )?değil(?:dir)?",
        but="aksine",
        and_="ve|veya|ya da|ile",
        because="çünkü|zira",
        so="yani|dolayısıyla|öyleyse",
        if_="eğer",
        if_after="ise",
        times="kere|çarpı|artı|eksi|bölü",
    ),
    Language(  # Indonesian
        signs="jawaban jawabannya adalah bukan melainkan karena benar salah memilih",
        point_groups=True,
        answer="jawaban(?:nya)?(?: (?:yang )?(?:benar|tepat|akhir))*|pilihan yang (?:benar|tepat)",
        is_="adalah|yaitu|ialah",
        option="opsi|pilihan|huruf|jawaban",
        choose="saya (?:memilih|pilih)",
        right="(?:yang )?(?:benar|tepat)",
        wrong="salah|keliru|tidak (?:benar|tepat)",
        not_="bukan(?:lah)?",
        but="melainkan|tetapi|tapi",
        and_="dan|atau",
        because="karena|sebab",
        so="jadi|maka|dengan demikian|yaitu",
        if_="jika|kalau",
        times="kali|tambah|kurang|bagi|dari",
    ),
    Language(  # Vietnamese
        signs="đáp án câu là không phải chọn đúng sai vì",
        point_groups=True,
        answer="(?:đáp án|câu trả lời)(?: (?:đúng|chính xác|cuối cùng))*",
        is_="là",
        option="phương án|lựa chọn|đáp án",
        choose="(?:tôi |ta )?chọn",
        right="đúng|chính xác",
        wrong="sai|không (?:đúng|chính xác)",
        not_="(?:chứ )?không phải(?: là)?",
        but="mà(?: là)?",
        and_="và|hoặc",
        because="vì|bởi vì|do",
        so="vậy|do đó|tức là",
        if_="nếu",
        times="nhân|cộng|trừ|chia",
    ),
)

# 3.5万, 5 Millionen
SCALES = (
    ("万|萬|만", 4),
    ("亿|億|억", 8),
    ("Milliarden?|mil millones|milliards?|bilh(?:ões|ão)|miliardi|миллиард[а-я]*|млрд|milyar|tỷ|مليار", " billion"),
    (
        "Million(?:en)?|Mio\\.?|mill(?:ones|ón|ions)|milh(?:ões|ão)|milioni|миллион[а-я]*|млн|milyon|juta|triệu|مليون",
        " million",
    ),
    ("Tausend|mil|mille|mila|тысяч[а-я]?|тыс\\.?|ribu|nghìn|ألف", " thousand"),
)
